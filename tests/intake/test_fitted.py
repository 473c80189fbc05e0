"""What a run recognises as its own."""

import os
import subprocess
import sys

import pytest
from PIL import Image

from anedl.intake.cache import build_cache
from anedl.intake.fitted import OwnPile, where_it_was
from anedl.intake.listing import Item


@pytest.fixture
def run(tmp_path):
    """A run that has sorted two images of a pile, one in a folder with another letter."""
    items = []
    for name in ("pile/café/a.png", "pile/plain/b.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        Image.effect_noise((8, 8), len(items) + 50).save(path)
        items.append(Item(path, name))
    build_cache(items, tmp_path / "run" / "cache", 8)
    (tmp_path / "run" / "triage.csv").write_text("file\n")
    return tmp_path / "run"


def in_plain_locale(code, *words):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, **plain}, capture_output=True, text=True,
    )  # fmt: skip


def test_the_pile_is_recognised_by_its_place(run):
    pile = run.parent / "pile"
    own = OwnPile(run)
    assert pile / "café" / "a.png" in own
    assert run / ".." / "pile" / "plain" / "b.png" in own
    assert pile / "plain" / "a.png" not in own


def test_a_locale_without_letters_stops_nothing(run):
    """It only counts: images can be judged all the same."""
    code = (
        "import sys; from pathlib import Path; from anedl.intake.fitted import OwnPile\n"
        "own = OwnPile(Path(sys.argv[1]))\n"
        "print(*[Path(path) in own for path in sys.argv[2:]])"
    )
    pile = run.parent / "pile"
    words = [run, pile / "plain" / "b.png", pile / "café" / "a.png", pile / "plain" / "c.png"]
    result = in_plain_locale(code, *words)
    assert result.stdout == "True False False\n", result.stderr


def test_files_that_the_locale_cannot_name_are_not_said_to_have_gone(run):
    cafe = run.parent / "pile" / "café" / "a.png"
    assert where_it_was(run, [cafe]) == ""
    assert "1 of 1 files are no longer" in where_it_was(run, [cafe.with_name("b.png")])
    code = (
        "import sys; from pathlib import Path; from anedl.intake.fitted import where_it_was\n"
        "where_it_was(Path(), [Path('caf\\u00e9')])"
    )
    result = in_plain_locale(code)
    assert "UnicodeEncodeError" in result.stderr
