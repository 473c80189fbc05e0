"""The trained model that comes with the project."""

import json
from pathlib import Path

import numpy as np
import pytest

from anedl.data.cifar import load_cifar100
from anedl.data.sources import data_root
from anedl.engine.evaluate import evaluate_run
from anedl.errors import DataError
from anedl.export.predictor import load
from anedl.ledger import read_ledger

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "results" / "models" / "cifar100-55-50"


@pytest.fixture(scope="module")
def recorded():
    """Its run in the ledger."""
    digest = json.loads((MODEL / "results.json").read_text())["config_hash"]
    (run,) = [run for run in read_ledger(ROOT / "results") if run.config_hash == digest]
    return run


def test_it_is_small():
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 10 * 2**20


def test_its_card_has_the_ledgers_figures(recorded):
    card = (MODEL / "README.md").read_text(encoding="utf-8")
    assert f"| test error, known classes | {recorded.best_val.error:.2f} % |" in card
    assert f"| AUROC, known against unknown | {recorded.best_val.auroc['score']:.2f} % |" in card
    assert f"after epoch {recorded.best_val.epoch + 1};" in card


def test_it_judges_images():
    predictor = load(MODEL, model="best", device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 32, 3), dtype=np.uint8)
    predictions = predictor.predict(list(images))
    assert len(predictor.class_names) == 55
    assert all(0 <= index < 55 for index in predictions.class_index)
    assert np.isfinite(predictions.inlier_score).all()


@pytest.mark.long
def test_evaluated_again_it_has_the_recorded_figures(recorded):
    """They are of bf16 on a GPU; on a CPU some images near a boundary change sides."""
    try:
        load_cifar100(data_root())
    except DataError as error:
        pytest.skip(str(error))
    figures = evaluate_run(MODEL, "best", unseen=["none"]).test
    assert 100 * figures.error == pytest.approx(recorded.best_val.error, abs=0.2)
    auroc = 100 * figures.by_score["score"].auroc
    assert auroc == pytest.approx(recorded.best_val.auroc["score"], abs=0.1)


def test_it_is_calibrated_and_rejects_what_resembles_nothing():
    """By evidence alone it took every such picture for one of its classes."""
    predictor = load(MODEL, device="cpu")
    noise = np.random.default_rng(1).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    blank = np.broadcast_to(
        np.arange(0, 250, 25, dtype=np.uint8)[:, None, None, None], (10, 32, 32, 3)
    )
    assert predictor.judge(noise).unknown.all()
    assert predictor.judge(np.ascontiguousarray(blank)).unknown.all()
