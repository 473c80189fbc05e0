import io
import tarfile

import pytest

from anedl.data.archive import unpack
from anedl.errors import DataError


def member(name, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def write_archive(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


GOOD = member("set/a.bin", b"first")


def test_files_and_folders_are_unpacked(tmp_path):
    archive = write_archive(
        tmp_path / "x.tar.gz",
        member("set", type=tarfile.DIRTYPE),
        GOOD,
        member("./set/inner/b.bin", b"second", mode=0o4777),
    )
    folder = unpack(archive, "set", tmp_path / "root")
    assert folder == tmp_path / "root" / "set"
    assert (folder / "a.bin").read_bytes() == b"first"
    assert (folder / "inner" / "b.bin").read_bytes() == b"second"
    assert (folder / "inner" / "b.bin").stat().st_mode & 0o7111 == 0
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["set"]


def test_folder_that_is_there_is_replaced(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "stale").touch()
    unpack(write_archive(tmp_path / "x.tar.gz", GOOD), "set", tmp_path)
    assert [path.name for path in (tmp_path / "set").iterdir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("evil", "message"),
    [
        (member("../escaped", b"x"), "leads out of its folder"),
        (member("set/../../escaped", b"x"), "leads out of its folder"),
        (member("/absolute", b"x"), "no plain relative path"),
        (member("set\\..\\..\\escaped", b"x"), "no plain relative path"),
        (member("C:/escaped", b"x"), "no plain relative path"),
        (member("set/link", type=tarfile.SYMTYPE, linkname="/etc"), "is a link to '/etc'"),
        (member("set/link", type=tarfile.LNKTYPE, linkname="set/a.bin"), "is a link"),
        (member("set/pipe", type=tarfile.FIFOTYPE), "neither a file nor a folder"),
        (member("set/device", type=tarfile.CHRTYPE), "neither a file nor a folder"),
        (member("elsewhere/x", b"x"), "lies outside 'set'"),
        (member("set/a.bin", b"again"), "twice"),
    ],
)
def test_harmful_member_is_refused_and_nothing_stays(tmp_path, evil, message):
    root = tmp_path / "root"
    (root / "set").mkdir(parents=True)
    (root / "set" / "kept").write_text("before")
    archive = write_archive(tmp_path / "x.tar.gz", GOOD, evil)
    with pytest.raises(DataError, match=message) as caught:
        unpack(archive, "set", root)
    assert "x.tar.gz: refused" in str(caught.value)
    assert [path.name for path in root.rglob("*")] == ["set", "kept"]
    assert {path.name for path in tmp_path.iterdir()} == {"root", "x.tar.gz"}


def test_bomb_is_refused(tmp_path):
    archive = write_archive(tmp_path / "x.tar.gz", member("set/zeros", bytes(3_000_000)))
    assert archive.stat().st_size < 10_000
    with pytest.raises(DataError, match="unpacks to more than 1,000,000 bytes"):
        unpack(archive, "set", tmp_path / "root", max_bytes=1_000_000)
    assert list((tmp_path / "root").iterdir()) == []
    unpack(archive, "set", tmp_path / "root", max_bytes=4_000_000)


def test_bomb_in_a_long_name_is_refused(tmp_path):
    archive = write_archive(tmp_path / "x.tar.gz", member("set/" + "n" * 3_000_000, b"x"))
    with pytest.raises(DataError, match="unpacks to more than"):
        unpack(archive, "set", tmp_path, max_bytes=1_000_000)


def test_damaged_archive_is_named(tmp_path):
    path = write_archive(tmp_path / "x.tar.gz", member("set/a", bytes(range(256)) * 400))
    whole = path.read_bytes()
    for content in (b"", b"no archive at all", whole[: len(whole) // 2], whole[:-4] + b"\0\0\0\0"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.tar\.gz: (damaged|holds no folder)"):
            unpack(path, "set", tmp_path)
        assert not (tmp_path / "set").exists()


def test_archive_without_the_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="holds no folder 'set'"):
        unpack(write_archive(tmp_path / "x.tar.gz"), "set", tmp_path)
