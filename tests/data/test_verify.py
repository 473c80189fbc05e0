import hashlib

import numpy as np
import pytest
from PIL import Image

from anedl.data import imagenet30
from anedl.data.verify import Finding, check_files, file_digest, verify
from anedl.errors import ConfigError


def test_checksums_are_compared(tmp_path):
    (tmp_path / "good").write_bytes(b"right")
    (tmp_path / "bad").write_bytes(b"wrong")
    checksums = {
        "good": "md5:" + hashlib.md5(b"right").hexdigest(),
        "bad": "sha256:" + hashlib.sha256(b"right").hexdigest(),
        "gone": "sha256:" + hashlib.sha256(b"").hexdigest(),
    }
    bad, gone = check_files(tmp_path, checksums, "fetch it")
    assert bad.where == str(tmp_path / "bad")
    assert checksums["bad"] in bad.problem
    assert hashlib.sha256(b"wrong").hexdigest() in bad.problem
    assert str(gone) == f"{tmp_path / 'gone'}: the file is missing; fetch it"


def test_digest_of_an_empty_file(tmp_path):
    (tmp_path / "empty").touch()
    assert file_digest(tmp_path / "empty", "md5") == "d41d8cd98f00b204e9800998ecf8427e"


def test_absent_cifar_is_one_finding(tmp_path):
    (finding,) = verify("cifar100", tmp_path)
    assert "cifar-100-binary/" in finding.problem
    assert finding.remedy == "run `anedl data fetch cifar100`"


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin", "cifar-10-batches-py"])
def test_wrong_cifar_files_are_all_named(tmp_path, folder):
    suffix = ".bin" if folder.endswith("bin") else ""
    (tmp_path / folder).mkdir()
    for number in range(1, 6):
        (tmp_path / folder / f"data_batch_{number}{suffix}").write_bytes(b"x")
    findings = verify("cifar10", tmp_path)
    assert len(findings) == 6
    assert all("wrong checksum" in finding.problem for finding in findings[:5])
    assert findings[5].where.endswith(f"test_batch{suffix}")
    assert "missing" in findings[5].problem


def test_unreadable_images_are_named(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(noise).save(tmp_path / name)
    assert verify("folder", tmp_path) == []
    (tmp_path / "a/2.jpg").write_bytes((tmp_path / "a/2.jpg").read_bytes()[:-200])
    (finding,) = verify("folder", tmp_path)
    assert str(finding).startswith(str(tmp_path / "a" / "2.jpg"))
    assert "remove or replace" in str(finding)


def test_counts_of_imagenet30_are_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet30, "TRAIN_PER_CLASS", 1)
    monkeypatch.setattr(imagenet30, "TEST_PER_CLASS", 1)
    for part in ("train", "test"):
        for name in imagenet30.IMAGENET30_CLASSES:
            (tmp_path / "imagenet30" / part / name).mkdir(parents=True)
            Image.new("RGB", (2, 2)).save(tmp_path / "imagenet30" / part / name / "1.png")
    assert verify("imagenet30", tmp_path) == []
    Image.new("RGB", (2, 2)).save(tmp_path / "imagenet30/test/tank/2.png")
    (finding,) = verify("imagenet30", tmp_path)
    assert finding == Finding("imagenet30 test", "class tank has 2 images, 1 are due")


def test_loading_error_is_a_finding(tmp_path):
    (finding,) = verify("miniimagenet", tmp_path)
    assert "no Mini-ImageNet here" in str(finding)


def test_digits_are_well():
    assert verify("digits") == []


def test_unknown_name_is_an_error():
    with pytest.raises(ConfigError, match="unknown data set"):
        verify("cifar1000")
