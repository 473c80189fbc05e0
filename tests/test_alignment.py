"""Distribution alignment against a plain list of the last batches, in numpy."""

import numpy as np
import pytest
import torch

from anedl.alignment import SMALLEST_SHARE, align, push


def random_rows(count: int, classes: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.ones(classes), count)).float()


def test_the_memory_holds_the_last_batches_in_a_ring():
    slots, classes = 4, 3
    means = random_rows(11, classes)
    memory, slot = torch.zeros(slots, classes), torch.zeros((), dtype=torch.int64)
    for count, mean in enumerate(means, 1):
        memory, slot = push(memory, slot, mean)
        last = np.zeros((slots, classes), np.float32)
        for number in range(max(0, count - slots), count):
            last[number % slots] = means[number].numpy()
        np.testing.assert_array_equal(memory.numpy(), last)
        assert slot.item() == count % slots
        assert slot.dtype == torch.int64


def test_pushing_changes_nothing_in_place():
    memory, slot = random_rows(3, 4), torch.tensor(1)
    before = memory.clone()
    written, following = push(memory, slot, torch.full((4,), 0.25))
    assert torch.equal(memory, before)
    assert slot.item() == 1
    assert (following.item(), written[1].tolist()) == (2, [0.25] * 4)


@pytest.mark.parametrize("classes", [2, 6, 55])
@pytest.mark.parametrize("written", [1, 5])
def test_align_against_the_formula_with_its_uniform_target(classes, written):
    memory = torch.zeros(5, classes)
    memory[:written] = random_rows(written, classes, seed=1)
    rows = random_rows(7, classes, seed=2)
    target = 1 / classes + 1e-6
    ratio = rows.double().numpy() * target / (memory.double().numpy().mean(0) + 1e-6)
    expected = ratio / ratio.sum(1, keepdims=True)
    np.testing.assert_allclose(align(rows, memory).numpy(), expected, rtol=2e-6)


def test_uniform_predictions_so_far_leave_the_rows_as_they_are():
    rows = random_rows(9, 5)
    torch.testing.assert_close(align(rows, torch.full((3, 5), 0.2)), rows)


def test_when_the_memory_is_the_batch_the_aligned_classes_are_nearer_to_equal():
    rows = random_rows(500, 4) * torch.tensor([0.6, 0.2, 0.15, 0.05])
    rows = rows / rows.sum(1, keepdim=True)
    aligned = align(rows, rows.mean(0, keepdim=True))
    spread = (aligned.mean(0) - 0.25).abs().max()
    assert spread < 0.3 * (rows.mean(0) - 0.25).abs().max()
    torch.testing.assert_close(aligned.sum(1), torch.ones(500))


def test_a_class_never_predicted_stays_finite():
    memory = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    rows = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    found = align(rows, memory)
    odds = SMALLEST_SHARE / (1 + SMALLEST_SHARE)
    torch.testing.assert_close(found[0, 0].item(), odds / (1 + odds), rtol=1e-5, atol=0)
    assert found[1:].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_half_precision_rows_are_aligned_in_full():
    rows = random_rows(4, 3).bfloat16()
    found = align(rows, random_rows(2, 3, seed=5))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(1), torch.ones(4))
