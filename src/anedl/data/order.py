"""In which order images are drawn: endless shuffles that are a pure function of the run's seed.

Nothing here has a state: the images of any step can be named without having run the steps before,
so a resumed run draws what the uninterrupted one would have drawn.
"""

import numpy as np

from anedl.data.dataset import IntArray


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
