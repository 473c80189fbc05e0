"""The figures of docs/fit.md are those of the study they are said to come from."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fit.md").read_text(encoding="utf-8")
SEEDS = json.loads((ROOT / "results" / "studies" / "example.json").read_text())["seeds"]


def row(title):
    """Cells of the table's row with this title."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


@pytest.mark.parametrize(
    ("title", "name"),
    [("called unknown: right", "precision"), ("strangers found", "recall"),
     ("accepted: right", "accepted_right"), ("known images lost (target 5)", "inlier_loss"),
     ("strangers in the pile: true", "strangers")],
)  # fmt: skip
def test_the_table_of_the_example_is_that_of_its_study(title, name):
    shares = np.array([100 * run["verdicts"][name]["share"] for run in SEEDS.values()])
    mean, span, *single = row(title)
    assert len(shares) == 20
    assert mean == f"{shares.mean():.1f} ± {shares.std(ddof=1):.1f}"
    assert span == f"{shares.min():.1f}–{shares.max():.1f}"
    for seed, cell in zip(("0", "2", "10"), single, strict=True):
        assert cell.split()[0] == f"{100 * SEEDS[seed]['verdicts'][name]['share']:.1f}"


def test_the_intervals_that_miss_are_those_named():
    missed = {
        int(seed)
        for seed, run in SEEDS.items()
        if not run["estimate"]["low"]
        <= run["verdicts"]["strangers"]["share"]
        <= run["estimate"]["high"]
    }
    assert not missed
    assert "holds the truth in 20 of 20" in PAGE


def test_the_readme_says_the_same():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for name, words in (("recall", "finds {} % of the strangers"),
                        ("inlier_loss", "loses {} % of the known images")):  # fmt: skip
        shares = np.array([100 * run["verdicts"][name]["share"] for run in SEEDS.values()])
        assert words.format(f"{shares.mean():.1f} ± {shares.std(ddof=1):.1f}") in readme
