"""Every method of the catalogue, by its own entry there, gets better at its labels.

The engine's tests check that weights move and that a run resumes to the bit.
"""

import pytest
import torch

from anedl.data.settings import get_setting
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper, select
from anedl.methods.base import Source, Stage
from anedl.methods.catalogue import METHODS

STEPS = 16  # of each stage
ENGINE = {"epochs": 2, "epoch_steps": STEPS, "pretrain_epochs": 1, "batch_size": 12}

# What tells how well labelled images are learnt; MTC classifies none in its first stage.
TELLING = {"mtc": "domain"}


@pytest.fixture(scope="module")
def problem():
    return load_problem(get_setting("digits"), fold=0, pool_limit=120)


@pytest.mark.parametrize("method", METHODS)
def test_the_loss_falls_over_both_stages(problem, method):
    spec = make_spec("digits", method, seed=0, pool_limit=120, train=ENGINE)
    stepper = build_stepper(spec, problem, Precision("fp32", torch.device("cpu")))
    values = []
    try:
        for epoch, stage in enumerate(Stage):
            wants = stepper.method.wants(stage)
            chosen = None
            if any(want.source is Source.SELECTED for want in wants.values()):
                chosen, _ = select(stepper, epoch * STEPS)
            stepper.begin_epoch(stage, epoch, 0, chosen)
            for _ in range(2):
                means = stepper.take_many(STEPS // 2).means
                values.append(means[TELLING.get(method, "ce")])
    finally:
        stepper.stream.close()
    assert values[-1] < 0.95 * values[0], values
