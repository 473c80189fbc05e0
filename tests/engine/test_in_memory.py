"""Training without a folder takes the steps of `train`, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.engine.epoch import NotFiniteError
from anedl.engine.held_model import HeldModel
from anedl.engine.in_memory import NEVER, train_in_memory
from anedl.engine.inference import outputs_of
from anedl.engine.model import load_model
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.familiarity import Familiarity

TINY = {"epochs": 3, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 6, "log_every": 2,
        "ema_decay": 0.6, "bn_momentum": 0.3}  # fmt: skip


@pytest.fixture(scope="module")
def spec():
    return make_spec("digits", pool_limit=80, train=TINY)


@pytest.fixture(scope="module")
def folder(spec, problem, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(spec, folder, Surroundings(device="cpu", quiet=True), problem)
    return folder


def without_validation(problem):
    return replace(problem, split=replace(problem.split, validation=np.zeros(0, np.int64)))


def same(first, second):
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_the_last_model_is_that_of_train(spec, problem, folder):
    run = train_in_memory(spec, without_validation(problem), "cpu")
    assert run.epoch == 2
    assert same(run.weights, load_file(folder / "model.safetensors"))


def test_the_selection_is_that_of_train(spec, problem, folder):
    run = train_in_memory(spec, problem, "cpu")
    last = load_file(folder / "outputs" / "pool-last.safetensors")["selected"].numpy()
    assert (run.first_selected[last] > 0).all()
    assert set(run.first_selected.tolist()) <= {NEVER, 1, 2}
    count = round(problem.setting.oracle_share * len(problem.split.pool))
    assert (run.first_selected == 1).sum() == count == len(last)


def test_validation_chooses_the_last_of_the_best_epochs(spec, problem, monkeypatch):
    errors = iter([0.1, 0.5, 0.5])  # the first epoch is only the method's first stage
    monkeypatch.setattr("anedl.engine.in_memory._validation_error", lambda *_: next(errors))
    assert train_in_memory(spec, problem, "cpu").epoch == 2
    errors = iter([0.1, 0.4, 0.5])
    monkeypatch.setattr("anedl.engine.in_memory._validation_error", lambda *_: next(errors))
    assert train_in_memory(spec, problem, "cpu").epoch == 1


def test_a_loss_that_is_not_finite_ends_it(problem):
    wild = make_spec("digits", pool_limit=80, train={**TINY, "learning_rate": 1e30})
    with pytest.raises(NotFiniteError, match="smaller learning_rate"):
        train_in_memory(wild, problem, "cpu")


def test_a_held_model_says_what_the_run_says(spec, problem, folder):
    trained = load_model(folder, device="cpu")
    pixels = problem.pool()[:70]
    expected = outputs_of(trained.method, pixels, trained.precision)
    arguments = {"setting": "digits", "train": TINY}
    weights = load_file(folder / "model.safetensors")
    held = HeldModel(arguments, len(problem.split.pool), weights, "cpu")
    frames = pixels.permute(0, 2, 3, 1).numpy()
    said = held.judge(frames)
    np.testing.assert_allclose(said.logits, expected.logits.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(said.score, expected.score.numpy(), rtol=1e-5)
    assert said.familiarity is None
    held.familiarity = Familiarity.of(said.features)
    familiar = held.familiarity.score(expected.features)
    np.testing.assert_allclose(held.judge(frames).familiarity, familiar, rtol=1e-4, atol=1e-6)
    none = held.judge(np.zeros((0, 8, 8, 1), np.uint8))
    assert [len(part) for part in none] == [0, 0, 0, 0]
    assert none.logits.shape == (0, 6)
