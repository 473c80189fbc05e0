"""The benchmark of the start: it waits for a real first step, and says why there was none."""

import os
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def start(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import start

    yield start
    sys.modules.pop("start")


def test_the_clock_stops_at_the_first_step(start, tmp_path):
    seconds = start.seconds_to_first_step(["digits"], tmp_path / "run", dict(os.environ))
    first = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0]
    assert seconds > 0.5  # nobody imports torch in less
    assert '"step": 1,' in first
    assert not (tmp_path / "run" / "results.json").exists()


def test_a_training_that_never_begins_is_told_of(start, tmp_path):
    with pytest.raises(SystemExit, match=r"before its first step(.|\n)*no-such-setting"):
        start.seconds_to_first_step(["no-such-setting"], tmp_path / "run", dict(os.environ))
