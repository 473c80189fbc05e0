"""Reading ahead: order, bounds, lazy lists, and leaving early."""

import os
import threading
import time

import numpy as np
import pytest
from PIL import Image

from anedl.errors import ConfigError, DataError
from anedl.export import reading
from anedl.export.framing import Framing
from anedl.export.reading import END_OF_CHUNK, Wanted, arriving, decoders, list_paths, read_ahead

FRAMING = Framing(resize=9, side=8, channels=3)


@pytest.fixture
def pipe():
    ends = list(os.pipe())
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # closed by the test


def paths_of(chunks):
    return [str(wanted.path) for chunk in chunks for wanted in chunk]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a.png\nb c.png\n\n", ["a.png", "b c.png"]),
        (b"a.png\r\nb.png", ["a.png", "b.png"]),
        (b"a\nb.png\0c.png\0", ["a\nb.png", "c.png"]),
        (b"\xef\xbb\xbfa.png\n", ["a.png"]),
        (b"\xff.png\n", ["\udcff.png"]),
        (b"", []),
    ],
)
def test_a_list_of_paths(pipe, content, expected):
    os.write(pipe[1], content)
    os.close(pipe[1])
    assert paths_of(arriving(pipe[0])) == expected


def test_line_breaks_are_part_of_names_where_asked(pipe):
    os.write(pipe[1], b"a\nb.png")
    os.close(pipe[1])
    assert paths_of(arriving(pipe[0], null=True)) == ["a\nb.png"]


def test_what_has_come_is_handed_on_before_the_list_ends(pipe):
    chunks = arriving(pipe[0])
    os.write(pipe[1], b"a.png\nb.png\nhalf")
    assert [wanted.name for wanted in next(chunks)] == ["a.png", "b.png"]
    os.write(pipe[1], b" a name.png\n")
    os.close(pipe[1])
    assert [wanted.name for wanted in next(chunks)] == ["half a name.png"]
    assert list(chunks) == []


def test_long_lists_come_in_pieces(pipe, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 3)
    os.write(pipe[1], b"".join(b"%d\n" % number for number in range(8)))
    os.close(pipe[1])
    assert [len(chunk) for chunk in arriving(pipe[0])] == [3, 3, 2]


def test_what_is_no_list_is_refused(pipe, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_NAME", 1000)
    os.write(pipe[1], b"x" * 2000)
    with pytest.raises(DataError, match="not a list of paths"):
        list(arriving(pipe[0]))


def test_files_and_folders_in_their_order(pictures, tmp_path):
    (tmp_path / "b").mkdir()
    Image.new("RGB", (3, 3)).save(tmp_path / "b" / "z.png")
    (tmp_path / "b" / "notes.txt").write_text("words")
    listed = list_paths(
        [pictures / "2.png", tmp_path / "b", tmp_path / "missing", pictures / "0.png"]
    )
    assert [wanted.path.name for wanted in listed.wanted] == ["2.png", "z.png", "missing", "0.png"]
    assert listed.wanted[1].name == f"{tmp_path}/b/z.png"
    assert [name for name, _ in listed.passed_over] == [f"{tmp_path}/b/notes.txt"]


@pytest.mark.parametrize("workers", [0, 2])
def test_frames_keep_their_order_and_say_what_is_wrong(pictures, tmp_path, workers):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.mkfifo(tmp_path / "pipe.png")
    wanted = [
        Wanted(pictures / "0.png", "first"),
        Wanted(tmp_path / "broken.png", "broken"),
        Wanted(tmp_path, "folder", "known to be bad"),
        Wanted(tmp_path / "pipe.png", "pipe"),
        Wanted(pictures / "1.png", "last"),
    ]
    *frames, end = read_ahead([wanted], FRAMING, workers)
    assert end is END_OF_CHUNK
    assert [frame.name for frame in frames] == [one.name for one in wanted]
    assert [frame.pixels is None for frame in frames] == [False, True, True, True, False]
    assert frames[2].error == "known to be bad"
    assert "named pipe" in frames[3].error
    resized = Image.open(pictures / "1.png").resize((9, 9), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(frames[-1].pixels, np.asarray(resized)[:8, :8])


def test_no_more_is_read_than_fits(pictures, monkeypatch):
    monkeypatch.setattr(reading, "AHEAD", 4)
    taken = []

    def chunks():
        for number in range(1000):
            taken.append(number)
            yield [Wanted(pictures / "0.png", str(number))]

    frames = read_ahead(chunks(), FRAMING, 0)
    assert next(frames).name == "0"
    time.sleep(0.3)
    assert len(taken) <= 6
    frames.close()
    running = [thread.name for thread in threading.enumerate()]
    assert "anedl-read-ahead" not in running


def test_a_failure_of_the_list_reaches_the_caller(pictures):
    def chunks():
        yield [Wanted(pictures / "0.png", "0")]
        raise DataError("the list ends badly")

    frames = read_ahead(chunks(), FRAMING, 0)
    assert next(frames).name == "0"
    with pytest.raises(DataError, match="ends badly"):
        list(frames)


def test_how_many_decode():
    assert decoders(3) == 3
    assert 1 <= decoders(None) <= 8
    with pytest.raises(ConfigError, match="-1"):
        decoders(-1)
