import hashlib
import io
import tarfile

import pytest

from anedl.data.fetch import ARCHIVES, Archive, fetch
from anedl.errors import ConfigError, DataError

CONTENT = bytes(range(256)) * 300


def tar_gz(*members):
    """An archive of (name, content or fields of a TarInfo)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, dict):
                for key, value in content.items():
                    setattr(info, key, value)
                content = b""
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


GOOD = tar_gz(("set/train.bin", CONTENT), ("set/names.txt", b"a\nb\n"))


@pytest.fixture
def offer(file_server):
    """Serve bytes as set.tar.gz and describe them as an Archive."""

    def serve(content, **changes):
        file_server.files["set.tar.gz"] = content
        settings = {
            "urls": (f"{file_server.url}/set.tar.gz",),
            "md5": hashlib.md5(content).hexdigest(),
            "folder": "set",
            "checksums": {"train.bin": "sha256:" + hashlib.sha256(CONTENT).hexdigest()},
        }
        return Archive(**{**settings, **changes})

    return serve


def run(archive, root, **options):
    options = {"progress": lambda *_: None, "sleep": lambda _: None, **options}
    return fetch("cifar10", root, archive=archive, **options)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_set_arrives_unpacked_and_the_archive_goes(offer, tmp_path):
    root = tmp_path / "new" / "root"
    assert run(offer(GOOD), root) == root / "set"
    assert names(root) == ["set", "set/names.txt", "set/train.bin"]
    assert (root / "set" / "train.bin").read_bytes() == CONTENT


def test_set_that_is_there_is_not_fetched_again(offer, file_server, tmp_path):
    archive = offer(GOOD)
    run(archive, tmp_path)
    run(archive, tmp_path)
    assert len(file_server.ranges) == 1


def test_damaged_set_is_fetched_again(offer, file_server, tmp_path):
    archive = offer(GOOD)
    run(archive, tmp_path)
    (tmp_path / "set" / "train.bin").write_bytes(b"damaged")
    run(archive, tmp_path)
    assert (tmp_path / "set" / "train.bin").read_bytes() == CONTENT
    assert len(file_server.ranges) == 2


def test_broken_fetch_goes_on_in_the_next_run(offer, file_server, tmp_path):
    archive = offer(GOOD)
    file_server.behave(stop_after=100)
    for _ in range(4):
        file_server.behave(status=503)
    with pytest.raises(DataError, match="503"):
        run(archive, tmp_path)
    assert (tmp_path / "set.tar.gz.part").read_bytes() == GOOD[:100]
    run(archive, tmp_path)
    assert file_server.ranges[-1] == "bytes=100-"
    assert names(tmp_path) == ["set", "set/names.txt", "set/train.bin"]


def test_archive_put_there_by_hand_is_used_and_kept(offer, file_server, tmp_path):
    archive = offer(GOOD)
    (tmp_path / "set.tar.gz").write_bytes(GOOD)
    run(archive, tmp_path)
    assert file_server.ranges == []
    assert "set.tar.gz" in names(tmp_path)
    assert (tmp_path / "set" / "train.bin").read_bytes() == CONTENT


def test_wrong_file_changes_nothing(offer, tmp_path):
    archive = offer(GOOD, md5="0" * 32)
    with pytest.raises(DataError, match=f"expected MD5 {'0' * 32}, got"):
        run(archive, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("evil", "message"),
    [
        (("../escaped", b"x"), "leads out"),
        (("/absolute", b"x"), "no plain relative path"),
        (("set/link", {"type": tarfile.SYMTYPE, "linkname": "/"}), "is a link"),
        (("set/link", {"type": tarfile.LNKTYPE, "linkname": "set/train.bin"}), "is a link"),
    ],
)
def test_harmful_archive_is_refused(offer, tmp_path, evil, message):
    root = tmp_path / "root"
    with pytest.raises(DataError, match=message):
        run(offer(tar_gz(("set/train.bin", CONTENT), evil)), root)
    assert not (root / "set").exists()
    assert not (tmp_path / "escaped").exists()


def test_bomb_is_refused(offer, tmp_path):
    with pytest.raises(DataError, match="unpacks to more than 50,000 bytes"):
        run(offer(GOOD, max_bytes=50_000), tmp_path)
    assert not (tmp_path / "set").exists()


def test_progress_is_written_by_default(offer, tmp_path, capsys):
    run(offer(GOOD), tmp_path, progress=None)
    assert "set.tar.gz" in capsys.readouterr().err


def test_root_that_cannot_be_written_is_named(offer, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file.*: cannot be written .*name another folder"):
        run(offer(GOOD), tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["imagenet30", "miniimagenet"])
def test_set_under_licence_is_explained(name, tmp_path):
    with pytest.raises(DataError, match=r"put in place by hand") as caught:
        fetch(name, tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert f"anedl data verify {name}" in str(caught.value)


def test_nothing_to_fetch_is_said(tmp_path):
    with pytest.raises(DataError, match="comes with scikit-learn"):
        fetch("digits", tmp_path)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown data set 'cifar11'"):
        fetch("cifar11", tmp_path)
    with pytest.raises(ConfigError, match="unknown layout 'matlab': known: binary, python"):
        fetch("cifar10", tmp_path, layout="matlab")


def test_official_archives():
    for (name, layout), archive in ARCHIVES.items():
        number = name.removeprefix("cifar")
        assert archive.file_name == f"cifar-{number}-{layout}.tar.gz"
        assert archive.urls[0] == f"https://www.cs.toronto.edu/~kriz/{archive.file_name}"
        assert all(url.startswith("https://") for url in archive.urls)
        assert len(bytes.fromhex(archive.md5)) == 16
    assert ARCHIVES["cifar100", "binary"].folder == "cifar-100-binary"
    assert ARCHIVES["cifar10", "python"].folder == "cifar-10-batches-py"
