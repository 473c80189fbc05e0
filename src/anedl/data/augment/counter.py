"""Random numbers without a state: a pure function of seed, step, slot, row and column.

A generator with a state forces an order on its callers, costs a copy in every checkpoint and is
awkward inside a captured CUDA graph. Here the numbers of one training step depend on where they are
used and on nothing else, so a run resumed at step 1000 draws what the unbroken run drew, and a
captured graph draws afresh each replay because it reads the step from a tensor on the device.

The function is Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011) in int64 arithmetic that never overflows: the bits are the same on every device.
"""

import torch
from torch import Tensor

ROUNDS = 10
MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
WORDS = 4


def uniforms(
    seed: int, step: Tensor | int, slot: int, rows: int, columns: int, device: torch.device | str
) -> Tensor:
    """Uniform numbers on [0, 1), a multiple of 2⁻²⁴ each: (rows, columns) float32 on `device`.

    `step` is a 0-dim int64 tensor on `device`, or an int; `slot` tells apart the uses in one step.
    Rows and columns are keyed by their number: a larger call begins with the same numbers.
    """
    groups = -(-columns // WORDS)
    zeros = torch.zeros(rows, groups, dtype=torch.int64, device=device)
    row = torch.arange(rows, device=device)[:, None]
    group = torch.arange(groups, device=device)
    even = torch.stack([zeros + row, zeros + (step & MASK)])
    odd = torch.stack([zeros + group, zeros + (slot & MASK)])
    even, odd = philox(even, odd, (seed & MASK, seed >> 32 & MASK))
    words = torch.stack([even[0], odd[0], even[1], odd[1]], dim=-1)
    # The top 24 bits, as many as a float32 holds: rounding can then never give 1.
    return (words.flatten(1)[:, :columns] >> 8).float() * 2.0**-24


def philox(even: Tensor, odd: Tensor, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Encrypt counters of four 32-bit words held in int64: `even` stacks words 0, 2, `odd` 1, 3.

    Both are (2, ...) and come back in the same arrangement.
    """
    # The masks change nothing but hide from the compiler that these are indices: it would fold the
    # constants below into index arithmetic of 32 bits, where they do not fit.
    pair = torch.arange(2, device=even.device) & 1
    turn = (torch.arange(ROUNDS, device=even.device) & 15)[:, None]
    shape = [2, *[1] * (even.dim() - 1)]

    def both(first: int, second: int) -> Tensor:
        return pair * (second - first) + first

    # The 64-bit product m·c overflows a signed integer, (m − 2³²)·c does not: its low word is the
    # same, and its high word is short by exactly c.
    multipliers = both(*(m - (MASK + 1) for m in MULTIPLIERS)).view(shape)
    # A round crosses the halves; with keys and odd words kept crossed, one flip a round does it.
    keys = (both(*reversed(key)) + turn * both(*reversed(KEY_INCREMENTS))) & MASK
    crossed = odd.flip(0)
    for round_key in keys.unbind():
        product = even * multipliers
        high = (product >> 32) + even
        even, crossed = (high ^ crossed ^ round_key.view(shape)).flip(0), product & MASK
    return even, crossed.flip(0)
