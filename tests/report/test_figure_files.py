"""Figures as files of their own."""

import pytest
from PIL import Image

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


def test_a_folder_without_a_run_is_told(tmp_path, capsys):
    assert main(["report", str(tmp_path / "none"), "--figures", str(tmp_path)]) == 1
    assert "none" in capsys.readouterr().err
