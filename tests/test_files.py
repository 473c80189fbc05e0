"""Files that appear whole or not at all."""

import json
import os
import stat

import pytest

from anedl.files import replacing, write_json, write_text


def test_the_new_content_takes_the_place_of_the_old(tmp_path):
    path = tmp_path / "deep" / "down" / "note.txt"
    write_text(path, "old")
    write_text(path, "ψ₁ new\n")
    assert path.read_bytes() == "ψ₁ new\n".encode()
    assert [found.name for found in path.parent.iterdir()] == ["note.txt"]


def test_a_failure_keeps_the_old_file_and_leaves_no_rubbish(tmp_path):
    path = tmp_path / "note.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            assert path.read_text() == "old", "the old file is there while the new is written"
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        fail()
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["note.txt"]


def test_json_is_standard_json(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"a": [1, 2.5, None], "ψ": True})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": [1, 2.5, None], "ψ": True}
    assert path.read_text(encoding="utf-8").endswith("}\n")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8"))["a"] == [1, 2.5, None]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX systems")
def test_files_are_as_public_as_the_umask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "private") as temporary:
            temporary.touch(0o600)
    finally:
        assert os.umask(before) == 0o027, "the umask is the caller's"
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o640
