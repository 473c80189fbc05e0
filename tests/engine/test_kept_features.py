"""Features of a frozen trunk from one call to the next."""

import errno
import fcntl
import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from anedl.data.dataset import ArrayImages, FileImages
from anedl.engine import features as making
from anedl.engine import kept_features
from anedl.engine.features import features_of_setting, keep_features, with_features
from anedl.engine.kept_features import Kept, digest_of_images
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.networks import package_of
from anedl.networks.frozen_encoder import FrozenEncoder

FP32 = Precision("fp32", torch.device("cpu"))
TINY = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 6, "frozen": True,
        "feature_views": 2, "frozen_side": 0}  # fmt: skip


@pytest.fixture
def spec_of(trained_backbone):
    def make(method="anedl-plus", **train):
        options = {**TINY, "backbone": trained_backbone, **train}
        return make_spec("digits", method, 0, pool_limit=80, train=options)

    return make


def no_look(*args):
    raise AssertionError("the trunk was asked")


def full_disk(*args, **keywords):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def not_ours(folder, waits):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "lock"))


def too_large(*args, **keywords):
    raise SafetensorError("I/O error: File too large (os error 27)")  # as the writer tells faults


def test_kept_features_are_read_again(problem, spec_of, tmp_path, monkeypatch):
    spec = spec_of()
    first = with_features(problem, spec, FP32, kept=Kept(tmp_path, "these")).features
    assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    again = with_features(problem, spec, FP32, kept=Kept(tmp_path, "these")).features
    assert torch.equal(again.plain, first.plain)
    assert torch.equal(again.views, first.views)
    with pytest.raises(AssertionError, match="was asked"):
        with_features(problem, spec, FP32, kept=Kept(tmp_path, "others"))


def test_what_was_cut_off_or_damaged_is_made_again(problem, spec_of, tmp_path, monkeypatch):
    spec = spec_of()
    first = with_features(problem, spec, FP32, kept=Kept(tmp_path)).features
    (tmp_path / "03-strong.safetensors").unlink()
    (tmp_path / "01-weak.safetensors").write_bytes(b"half of it")
    made = []
    real = making._features
    monkeypatch.setattr(making, "_features", lambda *args: made.append(args[1].view) or real(*args))
    again = with_features(problem, spec, FP32, kept=Kept(tmp_path)).features
    assert made == ["weak", "strong"]
    assert torch.equal(again.views, first.views)


def test_what_a_longer_try_left_behind_is_removed(problem, spec_of, tmp_path):
    with_features(problem, spec_of(), FP32, kept=Kept(tmp_path))
    with_features(problem, spec_of(feature_views=1), FP32, kept=Kept(tmp_path))
    left = sorted(path.stem for path in tmp_path.iterdir())
    assert left == ["00-plain", "01-weak", "02-strong"]


@pytest.fixture
def setting_of(tmp_path, monkeypatch, trained_backbone):
    """Two splits of the digits whose features may be kept in a folder."""
    monkeypatch.setenv("ANEDL_DATA", str(tmp_path))

    def make(seed, **train):
        options = {**TINY, "backbone": trained_backbone, **train}
        spec = make_spec("digits", "supervised", seed, train=options)
        return spec, load_problem(spec.terms, spec.fold)

    return make


def kept_files(root):
    return sorted(path.name for path in root.glob("features/*/*.safetensors"))


def test_all_runs_on_a_data_set_share_its_features(setting_of, tmp_path, monkeypatch):
    spec, problem = setting_of(0)
    first = features_of_setting(problem, spec, FP32, None).features
    assert kept_files(tmp_path) == [
        "00-plain.safetensors", "01-weak.safetensors", "02-weak.safetensors",
        "03-strong.safetensors", "04-strong.safetensors",
    ]  # fmt: skip
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    spec, problem = setting_of(1)
    other = features_of_setting(problem, spec, FP32, None).features
    assert torch.equal(other.views, first.views)
    assert other.plain.isfinite().all(), "of all images, whichever a split uses"


def test_features_of_another_size_lie_elsewhere(setting_of, tmp_path):
    for side in (0, 16):
        spec, problem = setting_of(0, frozen_side=side, feature_views=1)
        features_of_setting(problem, spec, FP32, None)
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_what_is_made_beforehand_is_found_by_training(setting_of, tmp_path, monkeypatch):
    spec, _ = setting_of(0)
    keep_features(spec, FP32.device, None)
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    results = train(spec, tmp_path / "run", Surroundings(quiet=True, device="cpu"))
    assert results["last"]["unseen"] == {}, "the trunk is not asked about other images"


def test_without_a_place_to_keep_them_features_are_made_all_the_same(setting_of, tmp_path):
    (tmp_path / "features").write_text("a file where the folder would be")
    spec, problem = setting_of(0)
    bank = features_of_setting(problem, spec, FP32, None).features
    assert bank.plain_of(problem.split.pool).isfinite().all()


def test_features_are_of_the_same_views_whether_kept_or_not(setting_of):
    """A run of one recipe learns from the same views, whatever its data folder allows.

    Kept are those of all images and not of the split's alone, so that batches are others and sums
    in them may be rounded otherwise.
    """
    spec, problem = setting_of(3)
    problem = replace(problem, split=replace(problem.split, pool=problem.split.pool[1::2]))
    used = problem.used_of_train()
    assert len(used) < len(problem.dataset.train.images)
    alone = with_features(problem, spec, FP32).features
    kept = features_of_setting(problem, spec, FP32, None).features
    torch.testing.assert_close(alone.plain_of(used), kept.plain_of(used), rtol=1e-4, atol=1e-5)
    ours, theirs = alone.views_of(used), kept.views_of(used)
    torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=1e-3)
    others = theirs.roll(1, dims=0)
    assert ((ours - others).abs() > 0.01).any(2).all(), "views of another image are far off"


def test_whoever_finds_them_all_waits_for_nobody(setting_of, tmp_path, monkeypatch):
    spec, problem = setting_of(0)
    first = features_of_setting(problem, spec, FP32, None).features
    monkeypatch.setattr(kept_features, "one_after_another", no_look)
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    assert torch.equal(features_of_setting(problem, spec, FP32, None).features.views, first.views)


@pytest.mark.parametrize(
    ("fault", "words"), [(full_disk, "No space left on device"), (too_large, r"(os error 27)")]
)
def test_what_cannot_be_written_costs_the_keeping_and_not_the_run(
    setting_of, tmp_path, monkeypatch, capsys, fault, words
):
    spec, problem = setting_of(0)
    expected = with_features(problem, spec, FP32).features
    monkeypatch.setattr(kept_features, "save_file", fault)
    bank = features_of_setting(problem, spec, FP32, None, quiet=False).features
    used = problem.used_of_train()
    assert torch.equal(bank.views_of(used), expected.views_of(used))
    said = capsys.readouterr().err
    assert said.count(f"{words}, so features are not kept and each run makes its own") == 1
    assert kept_files(tmp_path) == []


def test_a_run_to_which_nobody_listens_goes_on_without_keeping(setting_of, monkeypatch):
    def closed(*args):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    spec, problem = setting_of(0)
    monkeypatch.setattr(kept_features, "save_file", full_disk)
    monkeypatch.setattr(making, "TransferBar", lambda *args, **keywords: None)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=closed, flush=closed))
    bank = features_of_setting(problem, spec, FP32, None, quiet=False).features
    assert bank.plain_of(problem.split.pool).isfinite().all()


def test_a_full_disk_ends_a_fit_which_would_lose_what_it_did(
    problem, spec_of, tmp_path, monkeypatch
):
    monkeypatch.setattr(kept_features, "save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        with_features(problem, spec_of(), FP32, kept=Kept(tmp_path))


def test_a_folder_of_somebody_elses_is_read_where_it_is_whole(setting_of, monkeypatch, capsys):
    spec, problem = setting_of(0, feature_views=1)
    features_of_setting(problem, spec, FP32, None)

    monkeypatch.setattr(kept_features, "one_after_another", not_ours)
    more, problem = setting_of(0, feature_views=2)
    features_of_setting(problem, spec, FP32, None, quiet=False)
    assert capsys.readouterr().err == "", "all that it wants is there"
    bank = features_of_setting(problem, more, FP32, None, quiet=False).features
    assert bank.plain_of(problem.split.pool).isfinite().all()
    assert (
        "Permission denied, so features are not kept and each run makes its own"
        in capsys.readouterr().err
    )


def test_a_folder_that_may_not_be_looked_into_is_done_without(
    setting_of, tmp_path, monkeypatch, capsys
):
    spec, problem = setting_of(0, feature_views=1)
    features_of_setting(problem, spec, FP32, None)
    (place,) = (tmp_path / "features").iterdir()

    # As of a folder of somebody else's with mode 0700; the superuser may look into any.
    def guarded(real):
        def called(path, *args, **keywords):
            if place in Path(path).parents:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return real(path, *args, **keywords)

        return called

    for owner, name in ((os, "stat"), (io, "open"), (kept_features, "safe_open")):
        monkeypatch.setattr(owner, name, guarded(getattr(owner, name)))
    bank = features_of_setting(problem, spec, FP32, None, quiet=False).features
    assert bank.plain_of(problem.split.pool).isfinite().all()
    assert (
        "Permission denied, so features are not kept and each run makes its own"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("has_locks", [True, False])
def test_what_a_killed_process_left_half_written_is_removed_where_none_can_be_writing(
    setting_of, tmp_path, monkeypatch, has_locks
):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    spec, problem = setting_of(0, feature_views=1)
    features_of_setting(problem, spec, FP32, None)
    (place,) = (tmp_path / "features").iterdir()
    half = place / ".00-plain.safetensors.1234.tmp"
    half.mkdir()
    (place / "00-plain.safetensors").unlink()
    if not has_locks:
        monkeypatch.setattr(fcntl, "lockf", no_locks)
    features_of_setting(problem, spec, FP32, None)
    assert half.exists() is not has_locks
    assert (place / "00-plain.safetensors").exists()


def test_another_version_of_the_trunks_code_looks_again(setting_of, tmp_path, monkeypatch):
    spec, problem = setting_of(0, feature_views=1)
    for package in ("timm 1.0", "timm 1.1"):
        monkeypatch.setattr(kept_features, "package_of", lambda name, package=package: package)
        features_of_setting(problem, spec, FP32, None)
    assert len(list((tmp_path / "features").iterdir())) == 2


def test_a_trunks_package_has_a_version():
    assert package_of("efficientnet-lite0").startswith("efficientnet_lite_pytorch 0.")
    assert package_of("timm:resnet50:pretrained").split()[0] == "timm"


def test_images_in_files_are_kept_by_what_the_files_are(files_problem, trained_backbone, tmp_path,
                                                        monkeypatch):  # fmt: skip
    monkeypatch.setenv("ANEDL_DATA", str(tmp_path))
    problem = files_problem("imagenet")
    spec = make_spec(problem.setting, "supervised", 0, train={**TINY, "backbone": trained_backbone})
    features_of_setting(problem, spec, FP32, None)
    assert len(kept_files(tmp_path)) == 5
    images = problem.dataset.train.images
    before = digest_of_images([images])
    stat = images.paths[3].stat()
    os.utime(images.paths[3], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert digest_of_images([images]) != before
    os.utime(images.paths[3], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    features_of_setting(problem, spec, FP32, None)
    gone = replace(images, paths=[*images.paths, tmp_path / "gone.png"])
    assert digest_of_images([gone]) is None


def test_the_same_bytes_cut_otherwise_are_other_images(tmp_path):
    def arrays(*shapes):
        return digest_of_images([ArrayImages(np.zeros(shape, np.uint8)) for shape in shapes])

    assert arrays((6, 2, 2, 1), (4, 2, 2, 1)) == arrays((6, 2, 2, 1), (4, 2, 2, 1))
    assert arrays((6, 2, 2, 1), (4, 2, 2, 1)) != arrays((5, 2, 2, 1), (5, 2, 2, 1))
    assert arrays((6, 2, 2, 1)) != arrays((6, 4, 1, 1))
    assert arrays((6, 2, 2, 1), (0, 2, 2, 1)) != arrays((6, 2, 2, 1))
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        path.touch()
    first, other = ([FileImages(paths[:n]), FileImages(paths[n:])] for n in (1, 2))
    assert digest_of_images(first) != digest_of_images(other)


def test_nothing_is_made_beforehand_that_a_run_refuses_or_that_cannot_be_kept(
    setting_of, tmp_path, monkeypatch
):
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    spec, _ = setting_of(0)
    train = {**TINY, "backbone": spec.train.backbone}
    assert not keep_features(make_spec("digits", "mtc", 0, train=train), FP32.device, None)
    (tmp_path / "features").rmdir()
    (tmp_path / "features").write_text("a file where the folder would be")
    assert keep_features(spec, FP32.device, None), "there is no use in looking for others"


def test_nothing_is_made_beforehand_in_a_folder_that_is_only_read(setting_of, monkeypatch, capsys):
    spec, _ = setting_of(0)
    monkeypatch.setattr(kept_features, "one_after_another", not_ours)
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    assert keep_features(spec, FP32.device, None, quiet=False), "others cannot keep them either"
    assert "features are not kept and each run makes its own" in capsys.readouterr().err


def test_no_more_is_made_beforehand_when_the_disk_turns_out_to_be_full(setting_of, monkeypatch):
    spec, _ = setting_of(0)
    looked_at = []
    real = making._features

    def counted(*args):
        looked_at.append(args[1].view)
        return real(*args)

    monkeypatch.setattr(making, "_features", counted)
    monkeypatch.setattr(kept_features, "save_file", full_disk)
    assert keep_features(spec, FP32.device, None)
    assert looked_at == ["plain"]
