"""Figures as files of their own."""

import resource

import matplotlib.font_manager  # noqa: F401 - it keeps a file of its own, which must be there
import pytest
from PIL import Image
from tests.report.own_run import make_own_run

from anedl.cli import main
from anedl.report.figure_files import write_figures

BEGINS = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}


def test_every_figure_of_a_run_is_written(make_run, tmp_path):
    paths = write_figures(make_run(), tmp_path / "new" / "figures", "png")
    assert [path.name for path in paths] == [
        "spread.png", "roc.png", "oscr.png", "top-m.png", "confusion.png", "reliability.png",
        "curves.png", "selection.png",
    ]  # fmt: skip
    for path in paths:
        with Image.open(path) as image:
            least, most = image.convert("L").getextrema()
            assert min(image.size) > 200
            assert least < 100 < 200 < most  # ink on paper


@pytest.mark.parametrize("kind", BEGINS)
def test_the_command_says_which_files_there_are(make_run, tmp_path, capsys, kind):
    run = make_run()
    assert main(["report", str(run), "--figures", str(tmp_path), "--format", kind]) == 0
    said = capsys.readouterr().out.splitlines()
    assert sorted(said) == sorted(map(str, tmp_path.glob(f"*.{kind}")))
    for path in tmp_path.glob(f"*.{kind}"):
        assert path.read_bytes().startswith(BEGINS[kind])
    assert not (run / "report.html").exists()


@pytest.mark.parametrize("kind", BEGINS)
def test_a_full_disk_is_told_in_one_line(own_run, tmp_path, capsys, kind):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        status = main(
            ["report", str(own_run.folder), "--figures", str(tmp_path / "new"), "--format", kind]
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("anedl: [Errno ")
    assert list((tmp_path / "new").iterdir()) == []  # and no half of a figure


def test_letters_that_no_font_has_are_told_once(tmp_path, capsys):
    classes = ("zéro", "one \U0010fffd", "two \U0010fffe \U0010fffd")
    own = make_own_run(tmp_path / "own", classes=classes)
    words = ["report", str(own.folder), "--figures", str(tmp_path / "new"), "--format", "png"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == len(list((tmp_path / "new").iterdir()))
    (line,) = said.err.splitlines()
    assert line.startswith("no font on this machine has \U0010fffd \U0010fffe: ")


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none"), "--figures", str(tmp_path)]) == 1
    assert "none" in capsys.readouterr().err
