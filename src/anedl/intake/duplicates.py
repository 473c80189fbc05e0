"""Images that occur more than once: the same pixels, or hardly different ones.

Groups are numbers, one an image: images of a group share a number ≥ 0, an image alone has −1.
Numbers count the groups in the order of their first images. Likeness is passed on: where a is like
b and b is like c, all three are one group.

Why 4 bits: 173 patches cut from two photographs, with enough contrast to show something, were
resized to a half and to 1.5 times, saved as JPEG of quality 75, 50 and 30, made brighter, darker or
of more contrast by a fifth, or grey. Of each kind of copy at most one in 173 lay beyond 4 bits of
its original and none beyond 6; with 2 % cropped away, 26 % lay beyond 4. No two different patches
lay within 14. Simple drawings are closer to each other: of 1797 digits of 8 × 8 pixels, 7 % find
another within 4 bits and 22 % within 6. Where a camera never moves, all its pictures are so alike,
the hash of some classes being the same to the last bit: then only equal pixels tell a copy.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError

HashArray = npt.NDArray[np.uint64]

NEAR_DISTANCE = 4  # bits
MOST_NEAR_DISTANCE = 16  # beyond, pictures of different things meet
_BITS = 64
_PAIRS_AT_ONCE = 4_000_000


def exact_groups(digests: Sequence[str]) -> IntArray:
    """(N,) groups of equal digests."""
    if not digests:
        return np.zeros(0, np.int64)
    _, same = np.unique(np.asarray(digests), return_inverse=True)
    return _numbered(same.reshape(-1).astype(np.int64))


def near_groups(hashes: HashArray, distance: int = NEAR_DISTANCE) -> IntArray:
    """(N,) groups of images whose perceptual hashes (N,) differ in at most `distance` bits.

    The search is exact: every pair within the distance is found. Images without structure (hash 0)
    are alone: of a red and a blue square the hash says nothing.
    """
    if not 0 <= distance < _BITS:
        raise ConfigError(f"a distance between hashes is 0 to {_BITS - 1} bits, got {distance}")
    hashes = np.asarray(hashes, np.uint64)
    structured = np.flatnonzero(hashes)
    # Equal hashes meet here, or thousands of them would be compared pair by pair.
    values, same = np.unique(hashes[structured], return_inverse=True)
    parts = np.arange(len(values))
    for left, right in _candidates(values, distance):
        near = _bit_count(values[left] ^ values[right]) <= distance
        parts = _merged(parts, parts[left[near]], parts[right[near]])
    groups = np.full(len(hashes), -1, np.int64)
    groups[structured] = _numbered(parts[same.reshape(-1)].astype(np.int64))
    return groups


def duplicate_groups(
    digests: Sequence[str], hashes: HashArray, distance: int = NEAR_DISTANCE
) -> IntArray:
    """(N,) groups of images with equal digests, or with hashes (N,) up to `distance` bits apart.

    With a distance of 0 only equal digests count: different images may well have equal hashes.
    """
    exact = exact_groups(digests)
    return joined_groups(exact, near_groups(hashes, distance)) if distance else exact


def joined_groups(first: IntArray, second: IntArray) -> IntArray:
    """(N,) the finest groups that keep together what either (N,) grouping keeps together."""
    parts = np.where(first >= 0, first, first.max(initial=-1) + 1 + np.arange(len(first)))
    members = np.flatnonzero(second >= 0)
    _, leader, group = np.unique(second[members], return_index=True, return_inverse=True)
    parts = _merged(parts, parts[members], parts[members[leader[group.reshape(-1)]]])
    return _numbered(parts)


def shared_with(groups: IntArray, these: IntArray, others: IntArray) -> IntArray:
    """Those of the positions `others` that are in a group with any of the positions `these`."""
    marked = groups[these]
    found = others[np.isin(groups[others], marked[marked >= 0])]
    return found.astype(np.int64)


def copies_of(
    digests: Sequence[str],
    hashes: HashArray,
    known_digests: Sequence[str],
    known_hashes: HashArray,
    distance: int = NEAR_DISTANCE,
) -> npt.NDArray[np.bool_]:
    """(N,) which images have the digest of a known one, or a hash up to `distance` bits from one.

    Each is compared with the known ones alone: here likeness is not passed on.
    """
    found = np.isin(np.asarray(digests), np.asarray(known_digests))
    known = np.unique(known_hashes[known_hashes != 0])
    if distance == 0 or not len(known):
        return found
    for position in np.flatnonzero(~found & (hashes != 0)):
        found[position] = bool((_bit_count(known ^ hashes[position]) <= distance).any())
    return found


def _candidates(values: HashArray, distance: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Pairs of positions that may be within the distance, every such pair among them.

    The 64 bits are cut into bands, more than half as many as the distance: of a pair within the
    distance at least one band then differs in at most one bit (in none with more bands than the
    distance). Only values whose bands meet so are looked at.
    """
    if len(values) < 2 or distance == 0:
        return
    bands = max(distance // 2 + 1, 4)
    edges = [round(band * _BITS / bands) for band in range(bands + 1)]
    for low, high in pairwise(edges):
        width = high - low
        keys = (values >> np.uint64(low)) & np.uint64((1 << width) - 1)
        order = np.argsort(keys, kind="stable")
        ranked = keys[order]
        flips = [0, *(1 << bit for bit in range(width))] if distance >= bands else [0]
        for flip in flips:
            partner = ranked ^ np.uint64(flip)
            start = np.searchsorted(ranked, partner, "left")
            stop = np.searchsorted(ranked, partner, "right")
            # Each pair once: its first member looks for the second.
            start = np.maximum(start, np.arange(len(ranked)) + 1)
            yield from _expanded(order, start, np.maximum(start, stop))


def _expanded(
    order: IntArray, start: IntArray, stop: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """The pairs (order[n], order[m]) for start[n] ≤ m < stop[n], some millions at a time."""
    counts = stop - start
    some = np.flatnonzero(counts)
    ends = np.cumsum(counts[some])
    first = 0
    while first < len(some):
        before = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, before + _PAIRS_AT_ONCE, "right")), first + 1)
        rows = some[first:last]
        repeats = counts[rows]
        within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        yield np.repeat(order[rows], repeats), order[np.repeat(start[rows], repeats) + within]
        first = last


def _merged(parts: IntArray, left: IntArray, right: IntArray) -> IntArray:
    """Part numbers (N,) after parts left[n] and right[n] have become one."""
    apart = left != right
    if not apart.any():
        return parts
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    left, right = left[apart], right[apart]
    size = int(parts.max()) + 1
    links = coo_array((np.ones(len(left), np.bool_), (left, right)), shape=(size, size))
    joined: IntArray = connected_components(links, directed=False)[1].astype(np.int64)
    return joined[parts]


def _numbered(parts: IntArray) -> IntArray:
    """Parts of any numbers → groups in the order of their first images, −1 for parts of one."""
    _, first, same, counts = np.unique(
        parts, return_index=True, return_inverse=True, return_counts=True
    )
    several = np.flatnonzero(counts > 1)
    number = np.full(len(counts), -1, np.int64)
    number[several[np.argsort(first[several])]] = np.arange(len(several))
    return number[same.reshape(-1)]


def _bit_count(values: HashArray) -> npt.NDArray[np.uint8]:
    """How many bits of each value are set."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8)
    counts: npt.NDArray[np.uint8] = _OCTET_BITS[octets].sum(axis=1, dtype=np.uint8)
    return counts


_OCTET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1, dtype=np.uint8)
