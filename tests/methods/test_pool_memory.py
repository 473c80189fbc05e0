import torch

from anedl.methods.base import Outputs
from anedl.methods.pool_memory import PoolMemory


def said(logits, alpha=None):
    return Outputs(torch.zeros(len(logits), 1), logits, torch.arange(len(logits)).float(), alpha)


def words(count, pool=6, classes=4):
    generator = torch.Generator().manual_seed(5)
    return [
        said(
            3 * torch.randn(pool, classes, generator=generator),
            1 + torch.rand(pool, classes, generator=generator),
        )
        for _ in range(count)
    ]


def test_a_moving_mean_that_begins_with_the_first_word():
    memory = PoolMemory(6, 4, 0.6)
    outputs = words(3)
    for spoken in outputs:
        joined = memory.join(spoken)
    weights = torch.tensor([0.36, 0.24, 0.4], dtype=torch.float64)  # 0.6², 0.6 · 0.4, 0.4
    probability = torch.stack([o.logits.double().softmax(1) for o in outputs])
    alpha = torch.stack([o.alpha.double() for o in outputs])
    mean = torch.einsum("e,enk->nk", weights, probability)
    torch.testing.assert_close(joined.logits.double(), mean.log(), atol=1e-5, rtol=1e-5)
    expected = torch.einsum("e,enk->nk", weights, alpha)
    torch.testing.assert_close(joined.alpha.double(), expected, atol=1e-6, rtol=1e-6)
    assert torch.equal(joined.score, outputs[-1].score)
    places = torch.tensor([4, 0, 4])
    torch.testing.assert_close(memory.logits(places), joined.logits[places])


def test_without_a_share_only_the_last_word_counts():
    memory = PoolMemory(6, 4, 0.0)
    first, second = words(2)
    assert memory.join(first) is first
    assert memory.join(second) is second
    torch.testing.assert_close(memory.logits(torch.arange(6)), second.logits.log_softmax(1))
    assert memory.alpha.numel() == 0


def test_what_is_given_back_does_not_change_later():
    memory = PoolMemory(6, 4, 0.5)
    first, second = words(2)
    joined = memory.join(first)
    before = joined.logits.clone(), joined.alpha.clone()
    memory.join(second)
    assert torch.equal(joined.logits, before[0])
    assert torch.equal(joined.alpha, before[1])


def test_a_certain_opinion_has_finite_logits():
    memory = PoolMemory(1, 2, 0.5)
    joined = memory.join(said(torch.tensor([[500.0, -500.0]]), torch.ones(1, 2)))
    assert joined.logits.isfinite().all()
    assert joined.logits.argmax() == 0


def test_no_saved_model_carries_it():
    assert not PoolMemory(6, 4, 0.5).state_dict()
