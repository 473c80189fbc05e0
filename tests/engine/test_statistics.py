"""BatchNorm's statistics, measured anew for the averaged weights."""

import pytest
import torch
from torch import nn

from anedl.engine.statistics import WANTS, measure_statistics
from anedl.methods.base import Stage


@pytest.fixture
def trained(tiny_spec, tiny_stepper):
    stepper = tiny_stepper(tiny_spec())
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    stepper.take_many(3)
    return stepper


def first_norm(method) -> nn.BatchNorm2d:
    return next(m for m in method.modules() if isinstance(m, nn.BatchNorm2d))


def what_reaches(norm, method, batches):
    """The mean and the unbiased variance of each batch at the norm, averaged over the batches."""
    seen = []
    hook = norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    method.train()
    for images in batches:
        method.outputs(images)
    hook.remove()
    means = torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0)
    return means, torch.stack([x.transpose(0, 1).flatten(1).var(1) for x in seen]).mean(0)


def test_they_are_those_of_the_averaged_weights(trained):
    """Before the measurement they are not: the average only took over those of training."""
    trained.stream.begin_epoch(WANTS, 0, 4, None)
    drawn = [trained.stream.batch(torch.tensor(i), trained.step + i) for i in range(4)]
    images = [
        torch.cat([b.labelled.views[0], b.unlabelled["statistics_pool"].views[0]]) for b in drawn
    ]
    assert images[0].shape[0] == 6 * trained.config.batch_size
    norm = first_norm(trained.average)
    state = {name: tensor.clone() for name, tensor in trained.average.state_dict().items()}
    with torch.no_grad():
        mean, variance = what_reaches(norm, trained.average, images)
    trained.average.load_state_dict(state)
    assert not torch.allclose(norm.running_mean, mean, rtol=1e-3)
    measure_statistics(trained, 0, 4)
    torch.testing.assert_close(norm.running_mean, mean)
    torch.testing.assert_close(norm.running_var, variance)


def test_nothing_else_changes(trained):
    """Neither weights nor the training model, nor where the buffers lie that a graph reads."""
    before = {name: tensor.clone() for name, tensor in trained.average.state_dict().items()}
    training = {name: tensor.clone() for name, tensor in trained.method.state_dict().items()}
    places = [buffer.data_ptr() for buffer in trained.average.buffers()]
    drawn = {name: tensor.data_ptr() for name, tensor in trained.stream.drawn.items()}
    momentum = first_norm(trained.average).momentum
    measure_statistics(trained, 0, 2)
    changed = {
        name
        for name, tensor in trained.average.state_dict().items()
        if not torch.equal(tensor, before[name])
    }
    assert changed
    assert all("running" in name or "num_batches" in name for name in changed)
    after = trained.method.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in training.items())
    assert [buffer.data_ptr() for buffer in trained.average.buffers()] == places
    assert {name: trained.stream.drawn[name].data_ptr() for name in drawn} == drawn
    assert first_norm(trained.average).momentum == momentum


def test_other_batches_after_another_epoch(trained):
    found = []
    for epoch in (0, 1, 0):
        measure_statistics(trained, epoch, 2)
        found.append(first_norm(trained.average).running_mean.clone())
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


def test_images_that_are_read_from_files(files_problem, tiny_spec, tiny_stepper):
    stepper = tiny_stepper(tiny_spec(stream="disk"), of=files_problem())
    norm = first_norm(stepper.average)
    try:
        measure_statistics(stepper, 0, 2)
        assert norm.num_batches_tracked == 2
        assert norm.running_mean.abs().sum() > 0
    finally:
        stepper.stream.close()
