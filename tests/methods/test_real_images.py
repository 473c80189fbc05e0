"""A few steps of both stages of every method on real CIFAR-100, where its files are at hand."""

import pytest
import torch

from anedl.data.settings import get_setting
from anedl.data.sources import is_present
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper, select
from anedl.methods.base import Source, Stage
from anedl.methods.catalogue import METHODS

SETTING = "cifar100-55/50"
STEPS = 3


@pytest.fixture(scope="module")
def problem():
    return load_problem(get_setting(SETTING), fold=1, pool_limit=2000)


@pytest.mark.long
@pytest.mark.skipif(not is_present("cifar100"), reason="the files of CIFAR-100 are not here")
@pytest.mark.parametrize("method", METHODS)
def test_both_stages(problem, method):
    spec = make_spec(SETTING, method, seed=1, pool_limit=2000, train={"batch_size": 8})
    stepper = build_stepper(spec, problem, Precision("fp32", torch.device("cpu")))
    try:
        for epoch, stage in enumerate((Stage.PRETRAIN, Stage.SELF_TRAIN)):
            wants = stepper.method.wants(stage)
            chosen = None
            if any(want.source is Source.SELECTED for want in wants.values()):
                chosen, seen = select(stepper, epoch * spec.train.epoch_steps)
                assert chosen is None or 0 < len(chosen) <= len(seen) == 2000
            before = stepper.flat.values.clone()
            stepper.begin_epoch(stage, epoch, 0, chosen)
            interval = stepper.take_many(STEPS)
            assert interval.not_finite == []
            assert interval.loss > 0
            moved = (stepper.flat.values != before).float().mean()
            assert moved > 0.5
    finally:
        stepper.stream.close()
