"""A fabricated run of the digits: everything a finished run leaves, in a moment."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tests.report.own_run import make_own_run

from anedl import dirichlet, scores
from anedl.data.digits import load_digits
from anedl.data.protocol import draw_split
from anedl.data.settings import get_setting
from anedl.data.split_file import write_split
from anedl.engine.spec import make_spec
from anedl.evaluation.metrics import acceptance_threshold, evaluate
from anedl.report import pictures

EPOCHS, EPOCH_STEPS, PRETRAIN = 4, 10, 2


@cache
def drawn(fold):
    """The labels of the digits and the split of a fold."""
    labels = load_digits().train.labels
    split = draw_split(get_setting("digits"), fold, labels, labels[:0], tuple("0123456789"))
    return labels, split


def outputs_for(targets, rng, evidential):
    """Logits, and alpha where asked for, that mostly know the class and mostly doubt outliers."""
    classes = 6
    logits = rng.normal(size=(len(targets), classes)).astype(np.float32)
    known = targets >= 0
    logits[known, targets[known]] += 4
    tensors = {"features": logits.copy(), "logits": logits, "targets": targets}
    if evidential:
        alpha = (1 + np.exp(logits)).astype(np.float32)
        tensors["alpha"] = alpha
        tensors["score"] = scores.top_m_evidence(torch.from_numpy(alpha), 3).numpy()
    else:
        tensors["score"] = scores.max_softmax(torch.from_numpy(logits)).numpy()
    return tensors


def named_scores(tensors):
    alpha = torch.from_numpy(tensors["alpha"]) if "alpha" in tensors else None
    named = scores.all_scores(torch.from_numpy(tensors["logits"]), alpha, 3)
    return {"score": tensors["score"], **{name: value.numpy() for name, value in named.items()}}


def metric_rows(evidential):
    rows = []
    for epoch in range(EPOCHS):
        stage = 1 if epoch < PRETRAIN else 2
        head = {"step": epoch * EPOCH_STEPS + 5, "epoch": epoch, "stage": stage}
        terms = {"ce": 0.5}
        if evidential and stage == 2:
            head["selection"] = {
                "count": 400.0 + epoch, "starved": 2.0, "purity": 0.9, "recall": 0.6,
            }  # fmt: skip
            terms["fixmatch"] = 0.4
        rows.append({**head, "loss": 2.0 - 0.3 * epoch, "train": terms})
        rows.append(
            {
                "step": (epoch + 1) * EPOCH_STEPS,
                "epoch": epoch,
                "stage": stage,
                "validation": {"error": 0.2 - 0.01 * epoch},
                "test": {
                    "error": 0.3 - 0.02 * epoch,
                    "auroc": {"score": 0.8 + 0.02 * epoch, "max_softmax": 0.7 + 0.02 * epoch},
                },
            }
        )
    return rows


@pytest.fixture
def blank_pictures(monkeypatch):
    """Leave out the slow last step, from a figure to its drawing."""
    monkeypatch.setattr(pictures, "to_svg", lambda figure, name, alt: '<svg class="chart"></svg>')


@pytest.fixture
def make_run(tmp_path):
    """Make a run folder; `error` and `areas` overwrite figures of its results."""

    def make(
        name="run", method="anedl", seed=0, names=None, error=None, areas=None, rows=None, fold=None
    ):
        folder = tmp_path / name
        (folder / "outputs").mkdir(parents=True)
        rng = np.random.default_rng(seed)
        evidential = method == "anedl"
        train = {"epochs": EPOCHS, "epoch_steps": EPOCH_STEPS, "pretrain_epochs": PRETRAIN}
        spec = make_spec("digits", method, seed, fold=fold, train=train)
        (folder / "config.json").write_text(json.dumps(spec.to_json()))

        labels, split = drawn(spec.fold)
        if names is not None:
            split = replace(split, known_names=tuple(names))
        write_split(split, folder / "split.json")
        rows = metric_rows(evidential) if rows is None else rows
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

        test = outputs_for(split.test_targets(labels, labels[:0]), rng, evidential)
        validation = outputs_for(split.validation_targets(labels), rng, evidential)
        pool = outputs_for(split.targets(labels[split.pool]), rng, evidential)
        thresholds = {k: acceptance_threshold(v) for k, v in named_scores(validation).items()}
        probabilities = torch.from_numpy(test["logits"]).double().softmax(-1).numpy()
        metrics = evaluate(probabilities, test["targets"], named_scores(test), thresholds).to_json()
        if error is not None:
            metrics["error"] = error
        for key, area in (areas or {}).items():
            metrics["by_score"][key]["auroc"] = area
        figures = {"validation_error": 0.1, "test": metrics, "thresholds": thresholds}
        results = {
            "anedl": "0.1.0", "setting": "digits", "method": method, "seed": seed, "fold": fold,
            "development": False, "split_hash": split.digest, "config_hash": spec.digest,
            "steps": spec.train.steps, "seconds": 44.2, "device": "a <fast> machine",
            "torch": "2.13", "last": {"epoch": 3, **figures}, "best_val": {"epoch": 2, **figures},
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(results))

        save_file(test, folder / "outputs" / "test-last.safetensors")
        save_file(validation, folder / "outputs" / "validation-last.safetensors")
        probability = torch.from_numpy(pool["logits"]).softmax(-1).max(-1)
        seen = {
            "score": pool["score"],
            "predicted": probability.indices.numpy(),
            "probability": probability.values.numpy(),
            "truth": pool["targets"],
        }
        if evidential:
            alpha = torch.from_numpy(pool["alpha"])
            seen["evidence_predicted"] = pool["alpha"].max(axis=1)
            seen["epistemic"] = dirichlet.mutual_information(alpha).numpy()
            seen["aleatoric"] = dirichlet.expected_entropy(alpha).numpy()
        save_file(seen, folder / "outputs" / "pool-last.safetensors")
        return folder

    return make


@pytest.fixture
def own_run(tmp_path):
    """A run of `anedl fit` on 120 images, a third of them strangers."""
    return make_own_run(tmp_path / "own")
