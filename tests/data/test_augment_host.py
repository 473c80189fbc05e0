"""Host augmentation: every operation against arithmetic, and every view against its description."""

import hashlib
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from scipy.stats import chisquare

from anedl.data.augment import HostAugment, view_generator
from anedl.data.augment.host import _affine_matrix, cutout, draw_operations, rand_augment
from anedl.data.augment.host_ops import MAGNITUDES, OPERATIONS
from anedl.errors import ConfigError
from anedl.views import View

Bytes = npt.NDArray[np.uint8]
SIDE = 32


def picture(kind: str, side: int = SIDE, channels: int = 3) -> Bytes:
    """Noise, a smooth ramp, a flat image, or one of few grey levels."""
    rng = np.random.default_rng(side)
    shape = (side, side, channels)
    if kind == "noise":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if kind == "flat":
        return np.full(shape, 93, dtype=np.uint8)
    if kind == "few":
        return rng.choice(np.array([17, 60, 61, 200], dtype=np.uint8), shape)
    y, x, c = np.indices(shape)
    return (40 + 3 * x + 2 * y + 11 * c).clip(0, 255).astype(np.uint8)


def grey_of(image: Bytes) -> Bytes:
    if image.shape[2] == 1:
        return image
    red, green, blue = image.astype(np.int64).transpose(2, 0, 1)
    grey = (19595 * red + 38470 * green + 7471 * blue + 32768) // 65536
    return np.repeat(grey[:, :, None], 3, axis=2).astype(np.uint8)


def blend(base: Bytes, image: Bytes, factor: float) -> Bytes:
    difference = image.astype(np.float32) - base.astype(np.float32)
    return np.trunc(base.astype(np.float32) + np.float32(factor) * difference).astype(np.uint8)


def by_channel(image: Bytes, function: Callable[[Bytes], Bytes]) -> Bytes:
    return np.stack([function(image[:, :, k]) for k in range(image.shape[2])], axis=2)


def stretched(channel: Bytes) -> Bytes:
    low, high = int(channel.min()), int(channel.max())
    if low == high:
        return channel
    scale = 255 / (high - low)
    return np.clip(np.trunc(channel * scale + -low * scale), 0, 255).astype(np.uint8)


def equalised(channel: Bytes) -> Bytes:
    ordered = np.sort(channel, axis=None)
    step = int((ordered != ordered[-1]).sum()) // 255
    if step == 0:
        return channel
    below = np.searchsorted(ordered, channel, side="left")
    return ((step // 2 + below) // step).clip(max=255).astype(np.uint8)


def smoothed(image: Bytes) -> Bytes:
    padded = np.pad(image.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    height, width = image.shape[:2]
    total = 4 * image.astype(np.float64)
    for dy in range(3):
        for dx in range(3):
            total += padded[dy : dy + height, dx : dx + width]
    out = image.copy()
    out[1:-1, 1:-1] = np.floor(total / 13 + 0.5)[1:-1, 1:-1]
    return out


def warped(image: Bytes, rows: list[tuple[float, float, float]]) -> Bytes:
    """Nearest neighbour in 16.16 fixed point, black outside; rows lead from output to input."""

    def fixed(value: float) -> int:
        return math.floor(65536 * value + 0.5)

    side = len(image)
    out = np.zeros_like(image)
    for y in range(side):
        for x in range(side):
            column, row = (
                (fixed(a) * x + fixed(b) * y + fixed(c + a / 2 + b / 2)) >> 16 for a, b, c in rows
            )
            if 0 <= column < side and 0 <= row < side:
                out[y, x] = image[row, column]
    return out


def rotated(image: Bytes, degrees: float) -> Bytes:
    cos = round(math.cos(math.radians(degrees)), 15)
    sin = round(math.sin(math.radians(degrees)), 15)
    half = len(image) / 2
    return warped(
        image,
        [(cos, -sin, half - cos * half + sin * half), (sin, cos, half - sin * half - cos * half)],
    )


def shifted(image: Bytes, dx: int, dy: int) -> Bytes:
    side = len(image)
    canvas = np.pad(image, ((side, side), (side, side), (0, 0)))
    return canvas[side + dy : 2 * side + dy, side + dx : 2 * side + dx]


EXPECTED: dict[str, Callable[[Bytes, float], Bytes]] = {
    "AutoContrast": lambda image, p: by_channel(image, stretched),
    "Brightness": lambda image, p: blend(np.zeros_like(image), image, p),
    "Color": lambda image, p: blend(grey_of(image), image, p),
    "Contrast": lambda image, p: blend(
        np.full_like(image, math.floor(grey_of(image)[:, :, 0].mean() + 0.5)), image, p
    ),
    "Equalize": lambda image, p: by_channel(image, equalised),
    "Identity": lambda image, p: image,
    "Posterize": lambda image, p: (image // 2 ** (8 - int(p)) * 2 ** (8 - int(p))).astype(np.uint8),
    "Rotate": rotated,
    "Sharpness": lambda image, p: blend(smoothed(image), image, p),
    "ShearX": lambda image, p: warped(image, [(1, p, 0), (0, 1, 0)]),
    "ShearY": lambda image, p: warped(image, [(1, 0, 0), (p, 1, 0)]),
    "Solarize": lambda image, p: np.where(image < p, image, 255 - image),
    "TranslateX": lambda image, p: shifted(image, int(p), 0),
    "TranslateY": lambda image, p: shifted(image, 0, int(p)),
}

# What the magnitudes 1, 5 and 9 mean for an image of 32 pixels.
PARAMETERS = {
    "AutoContrast": (0, 0, 0),
    "Brightness": (0.14, 0.5, 0.86),
    "Color": (0.14, 0.5, 0.86),
    "Contrast": (0.14, 0.5, 0.86),
    "Equalize": (0, 0, 0),
    "Identity": (0, 0, 0),
    "Posterize": (4, 6, 7),
    "Rotate": (3, 15, 27),
    "Sharpness": (0.14, 0.5, 0.86),
    "ShearX": (0.03, 0.15, 0.27),
    "ShearY": (0.03, 0.15, 0.27),
    "Solarize": (231, 128, 26),
    "TranslateX": (0, 4, 8),
    "TranslateY": (0, 4, 8),
}
SIGNED = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operation_is_what_its_table_says_bit_for_bit(name: str, channels: int) -> None:
    operation = OPERATIONS[name]
    for kind in ("noise", "ramp", "flat", "few"):
        image = picture(kind, channels=channels)
        before = Image.fromarray(image[:, :, 0] if channels == 1 else image)
        for magnitude in (1, 2, 5, 8, 9):
            for sign in (1, -1) if operation.signed else (1,):
                parameter = sign * operation.parameter(magnitude, SIDE)
                after = operation.apply(before, parameter)
                assert after.size == before.size
                assert after.mode == before.mode
                actual = np.asarray(after).reshape(image.shape)
                np.testing.assert_array_equal(
                    actual, EXPECTED[name](image, parameter), err_msg=f"{kind} {parameter}"
                )
        np.testing.assert_array_equal(np.asarray(before).reshape(image.shape), image)


def test_parameters_of_the_magnitudes() -> None:
    assert set(OPERATIONS) == set(PARAMETERS)
    for name, expected in PARAMETERS.items():
        actual = [OPERATIONS[name].parameter(magnitude, SIDE) for magnitude in (1, 5, 9)]
        assert actual == pytest.approx(expected), name
        assert OPERATIONS[name].signed == (name in SIGNED)
    assert OPERATIONS["TranslateX"].parameter(9, 84) == 22  # 0.27 · 84 = 22.68


def test_operations_magnitudes_and_signs_are_uniform_and_half_are_applied() -> None:
    rng = np.random.default_rng(3)
    names: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    degrees: Counter[float] = Counter()
    for _ in range(20_000):
        drawn = draw_operations(rng, SIDE)
        counts[len(drawn)] += 1
        names.update(name for name, _ in drawn)
        degrees.update(parameter for name, parameter in drawn if name == "Rotate")
    assert chisquare([counts[n] for n in range(3)], [5000, 10_000, 5000]).pvalue > 1e-3
    assert chisquare([names[name] for name in OPERATIONS]).pvalue > 1e-3
    signed = [sign * 3 * magnitude for magnitude in MAGNITUDES for sign in (-1, 1)]
    assert set(degrees) == set(signed)
    assert list(MAGNITUDES) == list(range(1, 10))
    assert chisquare([degrees[value] for value in signed]).pvalue > 1e-3


def test_rand_augment_applies_the_drawn_operations_in_order() -> None:
    image = picture("noise")
    changed = 0
    for seed in range(60):
        expected = image
        for name, parameter in draw_operations(np.random.default_rng(seed), SIDE):
            expected = EXPECTED[name](expected, parameter)
        actual = rand_augment(image, np.random.default_rng(seed))
        np.testing.assert_array_equal(actual, expected)
        changed += not np.array_equal(actual, image)
    assert changed > 30


def test_cutout_is_a_grey_square_centred_anywhere_and_clipped() -> None:
    rng = np.random.default_rng(0)
    covered = np.zeros((SIDE, SIDE))
    trials = 3000
    for _ in range(trials):
        mask = (cutout(np.zeros((SIDE, SIDE, 3), np.uint8), 16, rng) == 127).all(axis=2)
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        assert mask.sum() == height * width
        assert height == 16 or rows[0] == 0 or rows[-1] == SIDE - 1
        assert width == 16 or columns[0] == 0 or columns[-1] == SIDE - 1
        assert 8 <= min(height, width) <= max(height, width) <= 16
        covered += mask
    # A pixel is covered if the centre lies in the 16 positions around it that the image has.
    line = np.array([min(SIDE - 1, p + 8) - max(0, p - 7) + 1 for p in range(SIDE)]) / SIDE
    assert np.abs(covered / trials - np.outer(line, line)).max() < 0.05


@pytest.mark.parametrize("kind", ["cifar", "small", "imagenet"])
def test_flip_mirrors_half_of_the_time_and_changes_nothing_else(kind: str) -> None:
    augment = HostAugment(kind, 32)
    image = picture("noise")
    plain = augment.apply(image, View.PLAIN, np.random.default_rng(0))
    mirrored = 0
    for index in range(400):
        out = augment.apply(image, View.FLIP, view_generator(0, 0, index, 0))
        if np.array_equal(out, plain):
            continue
        if kind == "imagenet":
            resized = Image.fromarray(image[:, ::-1]).resize((36, 36), Image.Resampling.BILINEAR)
            assert np.abs(out.astype(int) - np.asarray(resized)[2:34, 2:34]).max() <= 1
        else:
            np.testing.assert_array_equal(out, image[:, ::-1])
        mirrored += 1
    assert 160 < mirrored < 240


@pytest.mark.parametrize(("kind", "side", "pad"), [("cifar", 32, 4), ("small", 84, 10)])
def test_weak_is_a_crop_of_the_reflected_image_everywhere_equally_often(
    kind: str, side: int, pad: int
) -> None:
    augment = HostAugment(kind, side)
    image = picture("noise", side)
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    corners = {}
    for flip in (False, True):
        source = padded[:, ::-1] if flip else padded
        for top in range(2 * pad + 1):
            for left in range(2 * pad + 1):
                corners[source[top : top + side, left : left + side].tobytes()] = (top, left)
    seen: Counter[tuple[str, int]] = Counter()
    for index in range(1500):
        out = augment.apply(image, View.WEAK, view_generator(1, 0, index, 0))
        top, left = corners[out.tobytes()]
        seen.update([("top", top), ("left", left)])
    for edge in ("top", "left"):
        assert chisquare([seen[edge, at] for at in range(2 * pad + 1)]).pvalue > 1e-3


def test_strong_covers_half_the_side_with_grey_and_starts_from_weak() -> None:
    augment = HostAugment("cifar", 32)
    image = picture("noise")
    untouched = 0
    for index in range(200):
        rng = view_generator(2, 0, index, 0)
        strong = augment.apply(image, View.STRONG, view_generator(2, 0, index, 0))
        weak = augment.apply(image, View.WEAK, rng)
        drawn = draw_operations(rng, 32)
        grey = (strong == 127).all(axis=2)
        assert grey.sum() >= 64
        if not drawn:
            np.testing.assert_array_equal(strong[~grey], weak[~grey])
            untouched += 1
    assert 25 < untouched < 80


def test_imagenet_resizes_to_eight_sevenths_and_crops_inside() -> None:
    augment = HostAugment("imagenet", 56)
    y, x = np.indices((64, 64))
    image = np.stack([4 * x, 4 * y - y, x + y], axis=2).astype(np.uint8)
    plain = augment.apply(image, View.PLAIN, np.random.default_rng(0))
    np.testing.assert_array_equal(plain, image[4:60, 4:60])
    tops = set()
    for index in range(300):
        weak = augment.apply(image, View.WEAK, view_generator(0, 0, index, 0))
        top = int(weak[0, 0, 1]) // 3
        left = min(int(weak[0, 0, 0]), int(weak[0, -1, 0])) // 4
        window = image[top : top + 56, left : left + 56]
        assert np.array_equal(weak, window) or np.array_equal(weak, window[:, ::-1])
        tops.add(top)
    assert tops == set(range(9))


def test_digits_are_never_mirrored() -> None:
    augment = HostAugment("digits", 8)
    image = np.zeros((8, 8, 1), np.uint8)
    image[1:7, 2] = 255  # an L: its foot points right
    image[6, 2:6] = 255
    for view in View:
        closer_to_mirror = 0
        total = np.zeros((8, 8))
        for index in range(200):
            out = augment.apply(image, view, view_generator(0, 0, index, 0))
            assert out.shape == (8, 8, 1)
            total += out[:, :, 0]
            to_image = np.abs(out.astype(int) - image).mean()
            to_mirror = np.abs(out.astype(int) - image[:, ::-1]).mean()
            closer_to_mirror += to_mirror < to_image
        mean = (total / 200).ravel()
        likeness = np.corrcoef(mean, image.ravel())[0, 1]
        assert likeness > np.corrcoef(mean, image[:, ::-1].ravel())[0, 1] + 0.2, view
        if view in (View.PLAIN, View.FLIP):
            assert closer_to_mirror == 0
            assert np.array_equal(mean.reshape(8, 8), image[:, :, 0])


def test_weak_digits_move_little_and_strong_digits_are_covered() -> None:
    augment = HostAugment("digits", 8)
    dot = np.zeros((8, 8, 1), np.uint8)
    dot[3:5, 3:5] = 200
    centres = []
    for index in range(300):
        weak = augment.apply(dot, View.WEAK, view_generator(0, 1, index, 0)).astype(float)
        y, x, _ = np.indices(weak.shape)
        centres.append([(weak * y).sum() / weak.sum(), (weak * x).sum() / weak.sum()])
        strong = augment.apply(dot, View.STRONG, view_generator(0, 1, index, 0))
        assert (strong == 127).sum() >= 4
    offsets = np.array(centres) - 3.5
    assert np.abs(offsets).max() < 1.2
    for axis in (0, 1):
        shifts = Counter(np.rint(offsets[:, axis]).astype(int).tolist())
        assert chisquare([shifts[-1], shifts[0], shifts[1]]).pvalue > 1e-3


def test_affine_matrix_inverts_the_forward_change() -> None:
    angle, scale, shear, shift, centre = math.radians(20), 1.1, 0.15, (0.7, -0.4), 4.0
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    forward = rotation @ np.array([[1, shear], [0, 1]]) * scale
    point = np.array([1.3, 5.2])
    moved = forward @ (point - centre) + centre + np.array(shift)
    a, b, c, d, e, f = _affine_matrix(20, scale, shear, shift, centre)
    back = np.array([[a, b], [d, e]]) @ moved + np.array([c, f])
    np.testing.assert_allclose(back, point, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "side", "given", "channels"),
    [
        ("cifar", 32, (32, 32), 3),
        ("small", 84, (84, 84), 3),
        ("small", 84, (120, 90), 3),
        ("imagenet", 224, (375, 500), 3),
        ("digits", 8, (8, 8), 1),
        ("cifar", 28, (28, 28), 1),
    ],
)
def test_every_view_has_the_size_asked_for_and_is_a_fresh_array(
    kind: str, side: int, given: tuple[int, int], channels: int
) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (*given, channels), dtype=np.uint8)
    before = image.copy()
    image.setflags(write=False)
    for view in View:
        for index in range(5):
            out = HostAugment(kind, side).apply(image, view, view_generator(0, 0, index, 0))
            assert out.shape == (side, side, channels)
            assert out.dtype == np.uint8
            assert out.flags.writeable
            assert out.flags.c_contiguous
            assert not np.shares_memory(out, image)
    np.testing.assert_array_equal(image, before)


BATCH = """
import hashlib
import numpy as np
from anedl.data.augment import HostAugment, view_generator
from anedl.views import View
images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
augment = HostAugment("cifar", 32)
views = [augment.apply(images[i], View.STRONG, view_generator(5, 2, i, 1)) for i in ORDER]
print(*(hashlib.sha256(view.tobytes()).hexdigest() for view in views))
"""


def test_views_are_the_same_in_any_order_and_in_another_process() -> None:
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    augment = HostAugment("cifar", 32)
    here = {}
    for i in np.random.default_rng(9).permutation(16).tolist():
        view = augment.apply(images[i], View.STRONG, view_generator(5, 2, i, 1))
        here[i] = hashlib.sha256(view.tobytes()).hexdigest()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", BATCH.replace("ORDER", f"range({start}, 16, 2)")],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for start in (0, 1)
    ]
    for start, worker in enumerate(workers):
        out, _ = worker.communicate(timeout=60)
        assert out.split() == [here[i] for i in range(start, 16, 2)]


def test_streams_differ_in_each_of_the_four_numbers_and_look_uniform() -> None:
    base = (7, 3, 11, 0)
    streams = {view_generator(*base).random(4).tobytes()}
    for position in range(4):
        changed = [*base]
        changed[position] += 1
        streams.add(view_generator(*changed).random(4).tobytes())
    assert len(streams) == 5
    first = np.array([view_generator(0, 0, index, 0).random() for index in range(4000)])
    assert chisquare(np.histogram(first, bins=20, range=(0, 1))[0]).pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.06


def test_unknown_kinds_and_tiny_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean cifar"):
        HostAugment("cifar10", 32)
    with pytest.raises(ConfigError, match="at least 8"):
        HostAugment("cifar", 4)
