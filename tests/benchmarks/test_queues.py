"""The queues of trainings: each line is one that `anedl train` takes, and no two are alike."""

import sys
from pathlib import Path

import pytest

from anedl.cli.train import spec_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUEUES = sorted(BENCHMARKS.glob("*.txt"))


@pytest.fixture
def trials(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import trials

    yield trials
    sys.modules.pop("trials")


@pytest.mark.parametrize("queue", QUEUES, ids=lambda path: path.stem)
def test_every_line_is_a_training_of_its_own(queue, trials):
    found = {}
    for trial in trials.read_queue(queue):
        key = spec_of(list(trial.words)).digest
        assert key not in found, f"{trial.name} and {found[key]} are the same training"
        found[key] = trial.name
    assert found


def test_what_a_line_says_wins_over_what_holds_for_all(tmp_path, trials):
    queue = tmp_path / "queue.txt"
    queue.write_text(
        "*: digits --method anedl --seed 1\nlonger: --seed 2 --epochs 9  # a comment\n"
    )
    (trial,) = trials.read_queue(queue)
    spec = spec_of(list(trial.words))
    assert (trial.name, spec.seed, spec.train.epochs) == ("longer", 2, 9)


@pytest.mark.parametrize("line", ["no colon here", ": no name", "a: digits\na: digits"])
def test_a_line_that_means_nothing_is_refused_with_its_number(line, tmp_path, trials):
    queue = tmp_path / "queue.txt"
    queue.write_text(line)
    with pytest.raises(SystemExit, match=r"line [12]"):
        trials.read_queue(queue)
