"""Tensors that no checkpoint holds are told, once, and only where training changes them."""

import warnings

import pytest
import torch

from anedl.engine.checkpoint import Position, save_checkpoint
from anedl.engine.train import select
from anedl.engine.unsaved import Unsaved, plain_tensors
from anedl.methods.base import Stage
from anedl.methods.catalogue import METHODS


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)
        self.mean = torch.zeros(2)


class Keeping(torch.nn.Module):
    """Stands for a method with state of every kind."""

    def __init__(self):
        super().__init__()
        self.backbone = Part()
        self.part = Part()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.alias = self.weight
        self.saved = torch.nn.Buffer(torch.zeros(2))
        self.remembered = torch.nn.Buffer(torch.zeros(2), persistent=False)
        self.scale = torch.ones(2)
        self.last = None


def told(unsaved):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unsaved.tell()
    return [str(warning.message) for warning in caught]


def test_what_training_changes_is_told_once():
    method = Keeping()
    unsaved = Unsaved(method)
    for state in (method.saved, method.remembered, method.backbone.mean):
        state.add_(1)
    assert told(unsaved) == [], "what is saved, what is the trunk's, and what never changes"
    method.part.mean.add_(1)
    (message,) = told(unsaved)
    assert "'part.mean' is a tensor that is neither a parameter nor a buffer" in message
    assert "torch.nn.Buffer" in message
    method.part.mean.add_(1)
    method.last = torch.zeros(3)
    method.scale = method.scale * 2
    assert [message.split("'")[2] for message in told(unsaved)] == ["scale", "last"]
    assert told(unsaved) == []


def test_tensors_of_inference_mode_are_told_too():
    method = Keeping()
    unsaved = Unsaved(method)
    with torch.inference_mode():
        method.last = torch.zeros(3)
    assert len(told(unsaved)) == 1


def test_a_run_tells_after_its_first_step(tiny_spec, tiny_stepper, monkeypatch):
    stepper = tiny_stepper(tiny_spec("supervised"))
    loss = stepper.compute_loss

    def counting(batch, progress):
        stepper.method.count = getattr(stepper.method, "count", 0) + torch.ones(())
        return loss(batch, progress)

    stepper.compute_loss = counting
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    with pytest.warns(UserWarning, match="attribute 'count' is a tensor"):
        stepper.take_many(1)
    stepper.take_many(1)


def test_a_checkpoint_tells_what_came_later(tiny_spec, tiny_stepper, tmp_path):
    stepper = tiny_stepper(tiny_spec("supervised"))
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    stepper.take_many(1)
    stepper.method.late = torch.zeros(())
    with pytest.warns(UserWarning, match="attribute 'late' is a tensor"):
        save_checkpoint(tmp_path, stepper, Position(1, None, None, 0.0), "hash")


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_the_package_keep_nothing_unsaved(tiny_spec, tiny_stepper, method):
    stepper = tiny_stepper(tiny_spec(method))
    for epoch, stage in enumerate(Stage):
        selected = select(stepper, 0)[0] if stage is Stage.SELF_TRAIN else None
        stepper.begin_epoch(stage, epoch, 0, selected)
        stepper.take_many(1)
        assert plain_tensors(stepper.method) == {}
