"""The benchmark of networks alone and together: all of them together are the model itself."""

import sys
from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

import anedl
from anedl.engine.evaluate import load_run
from anedl.engine.inference import outputs_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHORT = {"epochs": 4, "epoch_steps": 4, "pretrain_epochs": 2, "batch_size": 6, "evaluate_every": 4}


@pytest.fixture
def networks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import networks

    yield networks
    sys.modules.pop("networks")


def test_alone_and_together(networks, tmp_path, monkeypatch, capsys):
    for name, count in (("one", 1), ("two", 2)):
        anedl.train("digits", out=tmp_path / name, device="cpu", networks=count, **SHORT)
    words = [str(tmp_path / name) for name in ("one", "two")]
    monkeypatch.setattr(sys, "argv", ["networks.py", *words, "--top-m", "3", "--pool", "100000"])
    networks.main()
    rows = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()[1:]]
    found = {group: (float(error), float(area)) for error, area, group in rows}
    assert list(found) == ["one", "two 1", "two 2", "two 1, two 2", "one, two 1", "one, two 2"]
    for group, name in (("one", "one"), ("two 1, two 2", "two")):
        _, problem, method, precision = load_run(tmp_path / name, "last", "cpu")
        images, targets = problem.validation()
        known = outputs_of(method, images, precision)
        pool = outputs_of(method, problem.pool(), precision)
        wrong = (known.logits.argmax(1).numpy() != targets).mean()
        scores = [*known.score.tolist(), *pool.score.tolist()]
        area = roc_auc_score([1] * len(images) + [0] * len(pool.score), scores)
        assert found[group] == pytest.approx((100 * wrong, 100 * area), abs=0.006)
    assert found["two 1"] != found["two 2"]


def test_runs_on_different_splits_are_refused(networks, tmp_path, monkeypatch, capsys):
    for seed in (0, 1):
        anedl.train("digits", seed=seed, out=tmp_path / str(seed), device="cpu", **SHORT)
    monkeypatch.setattr(sys, "argv", ["networks.py", str(tmp_path / "0"), str(tmp_path / "1")])
    with pytest.raises(SystemExit):
        networks.main()
    assert "another split" in capsys.readouterr().err
