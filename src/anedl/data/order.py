"""In which order images are drawn: endless shuffles that are a pure function of the run's seed.

Nothing here has a state: the images of any step can be named without having run the steps before,
so a resumed run draws what the uninterrupted one would have drawn.
"""

from collections.abc import Mapping

import numpy as np

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError
from anedl.methods.base import Source, Want

# Each source has its own random order; a name would be hashed differently from run to run.
ORDER_KEY = {Source.LABELLED: 0, Source.POOL: 1, Source.SELECTED: 2}


def draw_epoch(
    wants: Mapping[str, Want],
    sizes: Mapping[Source, int],
    batch_size: int,
    seed: int,
    epoch: int,
    epoch_steps: int,
    selected: IntArray | None,
) -> dict[str, IntArray]:
    """Per want, the (epoch_steps, images) positions among the labelled or the pool to draw.

    `sizes` says how many labelled and pool images there are. `selected` (n,) are the pool positions
    of the current pseudo-inliers, None for the whole pool.
    """
    labelled = sum(want.source is Source.LABELLED for want in wants.values())
    if labelled != 1:
        raise ConfigError(
            f"a method must want exactly one part of a batch from the labelled images; "
            f"its `wants` has {labelled}"
        )
    drawn = {}
    for slot, (name, want) in enumerate(wants.items()):
        count = want.ratio * batch_size
        total = epoch_steps * count
        key = (seed, ORDER_KEY[want.source], slot)
        if want.source is Source.SELECTED and selected is not None:
            if len(selected) == 0:
                raise DataError("no pool image was selected for self-training")
            # A new set each epoch, so its shuffles start anew; the others go on where they were.
            order = selected[endless_shuffle(len(selected), 0, total, (*key, epoch))]
        else:
            source = Source.LABELLED if want.source is Source.LABELLED else Source.POOL
            order = endless_shuffle(sizes[source], epoch * total, total, key)
        drawn[name] = order.reshape(epoch_steps, count)
    return drawn


def endless_shuffle(size: int, start: int, count: int, key: tuple[int, ...]) -> IntArray:
    """Entries start … start+count−1 of an endless sequence of shuffles of 0 … size−1.

    Each pass over the `size` entries is one shuffle, seeded by `key` and the number of the pass:
    every image comes once before any comes again.
    """
    if size < 1:
        raise ValueError("there is nothing to shuffle")
    first, last = start // size, (start + count - 1) // size
    passes = [_shuffled(size, (*key, number)) for number in range(first, last + 1)]
    begin = start - first * size
    return np.concatenate(passes)[begin : begin + count]


def _shuffled(size: int, key: tuple[int, ...]) -> IntArray:
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(key))))
    return generator.permutation(size).astype(np.int64)
