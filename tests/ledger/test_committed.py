"""The ledger that comes with the project, and the comparisons that the documents show of it."""

import re
import shlex
import statistics
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

from anedl.cli.train import spec_of
from anedl.engine.differences import differing_options
from anedl.engine.spec import make_spec
from anedl.ledger import read_ledger
from anedl.methods.catalogue import METHODS

ROOT = Path(__file__).parents[2]
SHOWN_NAMES = {
    "supervised": "supervised", "fixmatch": "FixMatch", "openmatch": "OpenMatch", "mtc": "MTC",
    "t2t": "T2T", "edl": "EDL", "iedl": "I-EDL", "iomatch": "IOMatch", "ssb": "SSB",
    "scomatch": "SCOMatch", "prosub": "ProSub", "anedl": "ANEDL, the paper's equations",
    "anedl-released": "ANEDL, as released",
    "anedl-plus": "ANEDL, our recipe",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs():
    return read_ledger(ROOT / "results")


def compared(runs, method):
    """The plain runs of a method on the digits with the seeds of the comparison."""
    wanted = ("digits", method, "full", False, {})
    return [
        run
        for run in runs
        if (run.setting, run.method, run.budget, run.development, run.options) == wanted
        and run.seed < 5
    ]


def test_every_entry_says_how_it_was_made_and_what_came_out(runs):
    for run in runs:
        assert run.command is not None
        words = shlex.split(run.command)
        assert words[:3] == ["anedl", "train", run.setting]
        assert words[words.index("--seed") + 1] == str(run.seed)
        assert ("--dev" in words) == run.development
        assert run.steps > 0
        assert run.wall_s > 0
        for figures in (run.last, run.best_val):
            assert figures is not None
            assert 0 <= figures.error <= 100
            assert 0 <= figures.auroc["score"] <= 100


@pytest.mark.parametrize("method", METHODS)
def test_the_comparison_on_the_digits_is_of_the_methods_as_they_are(runs, method):
    """Five seeds of each, with the digests that a run of today would have."""
    found = {run.seed: run.config_hash for run in compared(runs, method)}
    assert found == {seed: make_spec("digits", method, seed).digest for seed in range(5)}


@pytest.mark.parametrize("method", METHODS)
def test_the_page_of_runs_shows_what_the_ledger_holds(runs, method):
    last = [run.last for run in compared(runs, method)]
    error, auroc = (spread([one.error for one in last]), spread_of_scores(last, "score"))
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert f"| {SHOWN_NAMES[method]} | {error} | {auroc} |" in page.splitlines()


@pytest.mark.parametrize(
    ("method", "name", "by"),
    [("anedl-plus", "ANEDL (`anedl-plus`)", "top-3 evidence"),
     ("supervised", "labels alone", "largest probability")],
)  # fmt: skip
def test_the_readme_shows_the_same_of_the_two_that_the_demo_trains(runs, method, name, by):
    last = [run.last for run in compared(runs, method)]
    own, softmax = (spread_of_scores(last, score) for score in ("score", "max_softmax"))
    row = f"| {name} | {spread([one.error for one in last])} | {own} ({by}) | {softmax} |"
    assert row in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def spread(values):
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def spread_of_scores(figures, score):
    return spread([one.auroc[score] for one in figures])


def run_of(runs, words):
    """The recorded run of a command on CIFAR-100 with seed 1."""
    digest = spec_of(["cifar100-55/50", "--seed", "1", *words]).digest
    (found,) = [run for run in runs if run.config_hash == digest]
    return found


def table_rows(page, title):
    """The cells of every row of the first table after a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(f"\n{title}\n") :].splitlines()
    rows = list(dropwhile(lambda line: not line.startswith("|"), lines))
    rows = list(takewhile(lambda line: line.startswith("|"), rows))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_readme_shows_what_the_ledger_holds_of_photographs(runs):
    """Its rows of one run; the others are means of two seeds."""
    checked = 0
    for name, error, auroc, count, steps, options in table_rows(
        "README.md", "### CIFAR-100 beside the paper"
    ):
        if count != "1":
            continue
        run = run_of(runs, shlex.split(options.strip("`")))
        shown = (error.strip("*"), auroc.strip("*"), steps)
        last = (f"{run.last.error:.1f}", f"{run.last.auroc['score']:.1f}", f"{run.steps:,}")
        assert shown == last, name
        checked += 1
    assert checked >= 5


def test_the_comparison_on_photographs_shows_what_the_ledger_holds(runs):
    """A star means `--schedule cosine`; what else differs stands beside the method's name."""
    rows = table_rows("docs/reproduction.md", "## A quarter of the length")
    for name, *figures in rows:
        method, *options = re.findall(r"`([^`]+)`", name)
        words = ["--budget", "fast", "--method", method, *shlex.split(" ".join(options))]
        if "*" in name:
            words += ["--schedule", "cosine"]
        last = run_of(runs, words).last
        areas = (last.auroc["score"], last.auroc["max_softmax"])
        expected = [f"{value:.1f}" for value in (last.error, *areas)]
        assert [figure.strip("*") for figure in figures[:3]] == expected, name
    assert len(rows) >= 10


def test_every_command_gives_the_run_it_stands_for(runs):
    """Also when a method's defaults have changed since: what it then had is in the command."""
    for run in runs:
        spec = spec_of(shlex.split(run.command)[2:])
        assert spec.digest == run.config_hash, run.command
        stated = differing_options(spec.to_json())
        assert {name: stated[name] for name in run.options} == run.options, run.command
