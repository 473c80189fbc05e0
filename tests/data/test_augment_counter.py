"""The counter-based numbers are Philox's, uniform, independent along every key, and never wait."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode

from anedl.data.augment.counter import philox, uniforms


def reference_philox(counter, key):
    """Philox4x32-10 on Python's unbounded integers, written from its definition."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second % 2**32,
            (first >> 32) ^ c3 ^ k1,
            first % 2**32,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def encrypt(counter, key):
    even, odd = philox(torch.tensor(counter[0::2]), torch.tensor(counter[1::2]), key)
    return tuple(int(word) for word in (even[0], odd[0], even[1], odd[1]))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_published_known_answers(counter, key, expected):
    assert encrypt(counter, key) == expected


def test_philox_equals_unbounded_integers():
    rng = np.random.default_rng(0)
    for _ in range(50):
        *counter, k0, k1 = (int(word) for word in rng.integers(0, 2**32, 6))
        assert encrypt(counter, (k0, k1)) == reference_philox(counter, (k0, k1))


def test_numbers_are_the_words_of_their_own_counter():
    seed, step, slot = 2**40 + 17, 123_456, 3
    drawn = uniforms(seed, step, slot, 5, 7, "cpu")
    for row in range(5):
        for column in range(7):
            words = reference_philox((row, column // 4, step, slot), (seed % 2**32, seed >> 32))
            assert drawn[row, column].item() == (words[column % 4] >> 8) / 2**24


def test_golden_values():
    expected = [
        [784887, 12914921, 8289385, 7244198, 3339103],
        [14663592, 9099560, 3455848, 1920372, 7297338],
    ]
    assert (uniforms(1, 2, 3, 2, 5, "cpu") * 2**24).long().tolist() == expected


def test_a_step_on_the_device_is_the_same_step():
    assert torch.equal(
        uniforms(5, 9, 1, 20, 6, "cpu"), uniforms(5, torch.tensor(9), 1, 20, 6, "cpu")
    )


def test_shape_type_and_range_and_a_smaller_call_is_a_corner_of_a_larger():
    large = uniforms(0, 0, 0, 300, 13, "cpu")
    assert large.shape == (300, 13)
    assert large.dtype == torch.float32
    assert large.min() >= 0
    assert large.max() < 1
    assert torch.equal(uniforms(0, 0, 0, 100, 6, "cpu"), large[:100, :6])


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63])
def test_uniform_in_one_and_two_dimensions(seed):
    drawn = uniforms(seed, 7, 0, 20_000, 8, "cpu").numpy()
    for column in drawn.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    for first, second in [(0, 1), (1, 5), (3, 4), (6, 7)]:
        cells = np.histogram2d(drawn[:, first], drawn[:, second], bins=16, range=[[0, 1]] * 2)[0]
        assert stats.chisquare(cells.ravel()).pvalue > 1e-4


def test_low_bits_are_uniform_too():
    low = (uniforms(3, 0, 0, 20_000, 4, "cpu") * 2**24).long() % 64
    counts = np.bincount(low.flatten().numpy(), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-4


def blocks_differing_in(key):
    for value in range(12):
        where = {"seed": 11, "step": 40, "slot": 2} | {key: 100 + value}
        yield uniforms(rows=2500, columns=4, device="cpu", **where).flatten().double()


@pytest.mark.parametrize("key", ["seed", "step", "slot"])
def test_neighbouring_keys_are_uncorrelated(key):
    correlation = torch.corrcoef(torch.stack(list(blocks_differing_in(key)))).fill_diagonal_(0)
    # 66 pairs of 10,000 numbers each: the standard error of a correlation is 0.01.
    assert correlation.abs().max() < 0.045


@pytest.mark.parametrize("dim", [0, 1])
def test_neighbouring_rows_and_columns_are_uncorrelated(dim):
    drawn = uniforms(21, 3, 0, 2000, 2000, "cpu").double().movedim(dim, 0)
    assert torch.corrcoef(drawn[:40]).fill_diagonal_(0).abs().max() < 4.8 / 2000**0.5
    assert (
        abs(torch.corrcoef(torch.stack([drawn[:-1].flatten(), drawn[1:].flatten()]))[0, 1]) < 2e-3
    )


def test_keys_do_not_stand_in_for_each_other():
    """Equal sums or swapped keys give other numbers: nothing is merely added up."""
    drawn = [
        tuple(uniforms(seed, step, slot, 1, 4, "cpu").flatten().tolist())
        for seed in range(4)
        for step in range(4)
        for slot in range(4)
    ]
    assert len(set(drawn)) == 64


def test_nothing_is_read_back_by_the_host():
    """Fake tensors have no values, so anything that reads one fails here as it would in a graph."""
    with FakeTensorMode():
        step = torch.zeros((), dtype=torch.int64)
        assert uniforms(1, step, 0, 10, 5, "cpu").shape == (10, 5)
