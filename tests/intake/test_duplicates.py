import io
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from scipy.fft import dctn
from sklearn.datasets import load_sample_images

from anedl.data.augment.host import HostAugment
from anedl.errors import ConfigError
from anedl.intake.duplicates import (
    NEAR_DISTANCE,
    duplicate_groups,
    exact_groups,
    joined_groups,
    near_groups,
    shared_with,
)
from anedl.intake.perceptual import perceptual_hash


def brute_force(count, alike):
    """Groups by looking at every pair: the first image of a group spreads its number."""
    groups = [-1] * count
    number = 0
    for start in range(count):
        if groups[start] >= 0:
            continue
        members, front = {start}, [start]
        while front:
            here = front.pop()
            new = [n for n in range(count) if n not in members and alike(here, n)]
            members.update(new)
            front += new
        if len(members) > 1:
            for member in members:
                groups[member] = number
            number += 1
    return groups


@st.composite
def clustered(draw):
    """Hashes around a few centres, so that many pairs lie at about the distance asked for."""
    centres = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
    hashes = []
    for _ in range(draw(st.integers(0, 25))):
        value = draw(st.sampled_from(centres))
        for bit in draw(st.sets(st.integers(0, 63), max_size=8)):
            value ^= 1 << bit
        hashes.append(value)
    return hashes


@given(clustered(), st.integers(0, 14))
def test_near_groups_are_those_of_all_pairs(hashes, distance):
    def alike(a, b):
        return hashes[a] and hashes[b] and (hashes[a] ^ hashes[b]).bit_count() <= distance

    found = near_groups(np.array(hashes, np.uint64), distance)
    assert found.dtype == np.int64
    assert found.tolist() == brute_force(len(hashes), alike)


@pytest.mark.parametrize("distance", [1, 3, 4, 5, 6, 8])
def test_no_pair_is_missed_wherever_its_bits_lie(distance):
    """One pair a group at exactly the distance, and one bit beyond it."""
    rng = np.random.default_rng(distance)
    within, beyond = [], []
    for hashes, flips in ((within, distance), (beyond, distance + 1)):
        for _ in range(300):
            value = int(rng.integers(1, 2**63))
            other = value
            for bit in rng.choice(64, flips, replace=False):
                other ^= 1 << int(bit)
            hashes += [value, other]
    assert near_groups(np.array(within, np.uint64), distance).tolist() == [
        number // 2 for number in range(600)
    ]
    assert near_groups(np.array(beyond, np.uint64), distance).tolist() == [-1] * 600


def test_a_hundred_thousand_hashes_take_seconds():
    rng = np.random.default_rng(0)
    hashes = rng.integers(1, 2**64, 100_000, dtype=np.uint64)
    hashes[50_000:60_000] = hashes[7]  # one image ten thousand times
    hashes[99_999] = hashes[123] ^ np.uint64(0b1010001 << 20)
    began = time.monotonic()
    groups = near_groups(hashes)
    assert time.monotonic() - began < 20  # 1.6 s on an idle core
    assert groups.max() == 1
    assert np.flatnonzero(groups == 0).tolist() == [7, *range(50_000, 60_000)]
    assert np.flatnonzero(groups == 1).tolist() == [123, 99_999]


def test_exact_groups():
    assert exact_groups(list("xayazbz")).tolist() == [-1, 0, -1, 0, 1, -1, 1]
    assert exact_groups([]).tolist() == []


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), max_size=20))
def test_joined_groups_keep_together_what_either_does(pairs):
    def alike(a, b):
        return any(x == y >= 0 for x, y in zip(pairs[a], pairs[b], strict=True))

    first, second = np.array(pairs, np.int64).reshape(-1, 2).T
    assert joined_groups(first, second).tolist() == brute_force(len(pairs), alike)


def test_shared_with():
    groups = np.array([0, -1, 1, 2, 0, 1, -1, 2, 0])
    found = shared_with(groups, np.array([0, 1, 3]), np.array([4, 5, 6, 7, 8]))
    assert found.tolist() == [4, 7, 8]


def test_a_distance_is_a_number_of_bits():
    for distance in (-1, 64):
        with pytest.raises(ConfigError, match="0 to 63 bits"):
            near_groups(np.zeros(3, np.uint64), distance)


def test_the_hash_is_the_low_frequencies_against_their_median():
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, (32, 32, 3), np.uint8)
    spectrum = dctn(np.asarray(Image.fromarray(image).convert("L"), float), norm="ortho")
    diagonals = sorted((k + n, k, n) for k in range(32) for n in range(32))[1:65]
    low = [spectrum[k, n] for _, k, n in diagonals]
    bits = "".join("1" if value > np.median(low) else "0" for value in low)
    assert perceptual_hash(image) == int(bits, 2)


def test_images_without_structure_have_no_likeness():
    flat = [np.full((9, 9, 3), value, np.uint8) for value in (0, 0, 130, 255)]
    hashes = [perceptual_hash(image) for image in flat]
    assert hashes == [0, 0, 0, 0]
    assert near_groups(np.array(hashes, np.uint64)).tolist() == [-1] * 4


def test_copies_are_near_and_different_images_are_not():
    """The distance the search uses by default, on patches of photographs."""
    frame = HostAugment("small", 64).framed
    patches = []
    for photo in load_sample_images().images:
        for top in range(0, photo.shape[0] - 105, 106):
            for left in range(0, photo.shape[1] - 105, 106):
                patch = photo[top : top + 106, left : left + 106]
                if patch.mean(axis=2).std() > 20:
                    patches.append(Image.fromarray(patch))
    assert len(patches) >= 20

    def recompressed(image):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=50)
        return Image.open(file)

    changes = [
        lambda image: image.resize((53, 53), Image.Resampling.LANCZOS),
        lambda image: image.resize((160, 150), Image.Resampling.BICUBIC),
        recompressed,
        lambda image: ImageEnhance.Brightness(image).enhance(1.15),
        lambda image: ImageEnhance.Contrast(image).enhance(0.8),
        lambda image: image.convert("L").convert("RGB"),
    ]
    versions = [[change(patch) for change in (lambda i: i, *changes)] for patch in patches]
    hashes = [perceptual_hash(frame(np.array(image))) for row in versions for image in row]
    groups = near_groups(np.array(hashes, np.uint64), NEAR_DISTANCE)
    wanted = np.repeat(np.arange(len(patches)), len(changes) + 1)
    assert np.mean(groups == wanted) > 0.98


def test_without_a_distance_only_equal_pixels_are_copies():
    """Different images may have equal hashes; copies that differ in their hash do not exist."""
    digests = ["a", "b", "a", "c", "d"]
    hashes = np.array([5, 5, 5, 7, 2**63 + 9], np.uint64)
    assert duplicate_groups(digests, hashes, 0).tolist() == [0, -1, 0, -1, -1]
    assert duplicate_groups(digests, hashes, 1).tolist() == [0, 0, 0, 0, -1]
    blank = np.zeros(5, np.uint64)  # hashes that say nothing: the digests decide
    assert duplicate_groups(digests, blank, 4).tolist() == [0, -1, 0, -1, -1]
