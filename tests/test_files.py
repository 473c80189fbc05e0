"""Files that appear whole or not at all."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from safetensors import SafetensorError

from anedl.files import naming, replacing, sweep, write_json, write_text


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


FULL = "I/O error: No space left on device (os error 28)"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), SafetensorError(FULL), RuntimeError(FULL)],
    ids=lambda error: type(error).__name__,
)
def test_a_full_disk_is_told_with_the_file(tmp_path, error):
    path = tmp_path / "model.safetensors"
    with pytest.raises(OSError, match="No space left") as told, replacing(path):
        raise error
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(path))
    with pytest.raises(OSError, match="No space left") as told, naming(path):
        raise error
    assert told.value.filename == str(path)


def test_the_writers_own_temporary_file_is_not_what_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(OSError, match="No space") as told, replacing(path) as temporary:
        raise OSError(errno.ENOSPC, "No space left on device", str(temporary.with_name("part")))
    assert told.value.filename == str(path)


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device", "/elsewhere/file"),
     OSError(errno.EPIPE, "Broken pipe"), SafetensorError("invalid header"), ValueError("28")],
)  # fmt: skip
def test_other_errors_stay_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as told, replacing(tmp_path / "file"):
        raise error
    assert told.value is error


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


# A writer with a temporary file of its own, killed in the midst of it.
KILLED_WRITER = """
import os, pathlib, signal, sys
from anedl.files import replacing
with replacing(pathlib.Path(sys.argv[1])) as temporary:
    temporary.with_name(".tmpX4q").write_text("half of th")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")
def test_what_a_killed_writer_leaves_is_swept(tmp_path):
    path = tmp_path / "deep" / "note.txt"
    write_text(path, "old")
    others = [tmp_path / ".notes.tmp", tmp_path / "deep" / ".hidden"]
    for other in others:
        other.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(path.parent.iterdir())) == 3
    sweep(tmp_path)
    assert sorted(path.parent.iterdir()) == sorted([path, others[1]])
    assert others[0].exists(), "not one of ours"
