"""What the documents show is run, so that it stays true."""

import re
from pathlib import Path

import pytest

import anedl
from anedl.cli.methods import options_table
from anedl.errors import ConfigError
from anedl.methods.anedl import RELEASED
from anedl.methods.catalogue import METHODS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "pseudo_label.py"


def test_the_worked_example_is_short_and_trains(tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) < 60
    run = anedl.train(
        "digits", method=f"{EXAMPLE}:PseudoLabel", out=tmp_path / "run", threshold=0.8,
        epochs=6, epoch_steps=20, pretrain_epochs=2, learning_rate=0.1,
    )  # fmt: skip
    assert run.test.error < 0.6  # chance is 0.83
    assert "pseudo" in (run.folder / "metrics.jsonl").read_text()


def test_a_file_without_the_class_is_refused():
    with pytest.raises(ConfigError, match="no such subclass"):
        anedl.train("digits", method=f"{EXAMPLE}:Missing")


def test_a_missing_file_is_refused():
    with pytest.raises(ConfigError, match="no such file"):
        anedl.train("digits", method="nowhere.py:Method")


def test_the_page_of_options_is_up_to_date():
    page = (DOCS / "options.md").read_text()
    assert options_table(METHODS["anedl"]) in page
    for name, value in RELEASED.items():
        assert f"| `--{name.replace('_', '-')}` | `{value}` |" in page


def test_links_between_documents_lead_somewhere():
    for page in [*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
