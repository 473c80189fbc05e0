"""docs/run-files.md against a run: every field there is named, and the example computes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

PAGE = Path(__file__).parents[2] / "docs" / "run-files.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names():
    """What the example defines."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found: dict = {}
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    exec(compile(example, str(PAGE), "exec"), found)
    torch.set_num_threads(before)
    return found


def section(heading):
    return TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]


def named(text):
    return set(re.findall(r"`([a-z_0-9]+)`", text)) | set(re.findall(r'\["([a-z_]+)"\]', text))


def test_the_example_gives_what_results_and_log_say(names):
    run = names["run"]
    assert names["largest"] == pytest.approx(run.test.by_score["max_alpha"].auroc)
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    last = [row["selection"] for row in rows if "selection" in row][-1]
    assert names["purity"] == pytest.approx(last["purity"])
    assert run.results["last"]["epoch"] == 2, "epochs count from 0"


def test_every_field_of_the_results_is_named(names):
    results = names["run"].results
    of_model = results["last"]
    fields = {*results, *of_model, *of_model["test"], *of_model["test"]["by_score"]}
    fields |= set(of_model["test"]["by_score"]["score"])
    unseen = next(iter(of_model["unseen"].values()))
    fields |= {*unseen, *unseen["by_score"]["score"]}
    assert fields <= named(section("`results.json`"))


def test_every_field_of_the_log_is_named(names):
    rows = (names["run"].folder / "metrics.jsonl").read_text().splitlines()
    fields = set().union(*map(json.loads, rows))
    selection = next(row["selection"] for row in map(json.loads, rows) if "selection" in row)
    assert fields | set(selection) <= named(section("`metrics.jsonl`"))


def test_every_tensor_is_named_with_its_shape(names):
    text = named(section("`outputs/`"))
    for path in (names["run"].folder / "outputs").iterdir():
        tensors = load_file(path)
        assert set(tensors) <= text, path.name
        lengths = {name: len(value) for name, value in tensors.items() if name != "selected"}
        assert len(set(lengths.values())) == 1
    assert np.isin(names["pool"]["selected"], np.arange(len(names["pool"]["truth"]))).all()
