"""Whole views: the host's, pixel for pixel, for the same random numbers, and the right mixture."""

import collections

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from torch._subclasses.fake_tensor import FakeTensorMode

from anedl.data.augment.batched import BatchedAugment, cutout
from anedl.data.augment.batched_randaugment import CHOICES, DRAWS_A_LAYER, RandAugment, draw_choice
from anedl.data.augment.counter import uniforms
from anedl.data.augment.host import HostAugment
from anedl.data.sources import load_dataset
from anedl.errors import ConfigError, DataError
from anedl.views import View

NAMES = {
    *("AutoContrast", "Brightness", "Color", "Contrast", "Equalize", "Identity", "Posterize"),
    *("Rotate", "Sharpness", "ShearX", "ShearY", "Solarize", "TranslateX", "TranslateY"),
}


def pictures(count, size=32, channels=3, seed=0):
    """Smooth coloured blobs with some noise, closer to photographs than noise alone."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, channels, 4, 4)).astype(np.float32)
    smooth = torch.nn.functional.interpolate(
        torch.from_numpy(coarse), size=(size, size), mode="bilinear"
    )
    noise = torch.from_numpy(rng.normal(0, 8, smooth.shape))
    return (smooth + noise).clamp(0, 255).to(torch.uint8)


def to_hwc(images):
    return images.permute(0, 2, 3, 1).contiguous().numpy()


class Replay:
    """Stands in for numpy's generator and hands out given numbers one after another."""

    def __init__(self, numbers):
        self.numbers = collections.deque(numbers)

    def random(self, size=None):
        count = 1 if size is None else int(np.prod(size))
        drawn = np.array([self.numbers.popleft() for _ in range(count)])
        return drawn[0] if size is None else drawn.reshape(size)

    def uniform(self, low, high, size=None):
        return low + (high - low) * self.random(size)

    def integers(self, low, high, size=None):
        return low + np.floor((high - low) * self.random(size)).astype(np.int64)


def by_the_host(kind, images, view, numbers):
    host = HostAugment(kind, images.shape[-1])
    made = []
    for image, row in zip(to_hwc(images), numbers.double().tolist(), strict=True):
        replay = Replay(row)
        made.append(host.apply(image, view, replay))
        assert not replay.numbers, "the host uses fewer numbers than the batch"
    return torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("kind", "size", "channels"),
    [("cifar", 32, 3), ("cifar", 28, 1), ("small", 84, 3), ("digits", 8, 1), ("digits", 16, 3)],
)
@pytest.mark.parametrize("view", list(View))
def test_the_same_numbers_make_the_same_view_as_on_the_host(kind, size, channels, view):
    augment = BatchedAugment(kind, size, channels)
    images = pictures(1500 if size == 32 else 200, size, channels)
    if augment.draws(view) == 0:
        made = augment(images, view, 0, 0, 0)
        numbers = torch.zeros(len(images), 0)
    else:
        numbers = uniforms(3, 1, 4, len(images), augment.draws(view), "cpu")
        made = augment(images, view, 3, 1, 4)
    assert made.dtype == torch.uint8
    assert torch.equal(made, by_the_host(kind, images, view, numbers))


def pillow_operation(name, magnitude, sign, size):
    """FixMatch's definition of one draw, straight from Pillow."""
    share = magnitude / 10
    factor = 0.05 + 0.9 * share
    shift = sign * int(share * 0.3 * size + 1e-9)
    shear = sign * share * 0.3

    def affine(*matrix):
        return lambda p: p.transform(p.size, Image.Transform.AFFINE, matrix)

    return {
        "AutoContrast": ImageOps.autocontrast,
        "Brightness": lambda p: ImageEnhance.Brightness(p).enhance(factor),
        "Color": lambda p: ImageEnhance.Color(p).enhance(factor),
        "Contrast": lambda p: ImageEnhance.Contrast(p).enhance(factor),
        "Equalize": ImageOps.equalize,
        "Identity": lambda p: p,
        "Posterize": lambda p: ImageOps.posterize(p, int(share * 4) + 4),
        "Rotate": lambda p: p.rotate(sign * int(share * 30)),
        "Sharpness": lambda p: ImageEnhance.Sharpness(p).enhance(factor),
        "ShearX": affine(1, shear, 0, 0, 1, 0),
        "ShearY": affine(1, 0, 0, shear, 1, 0),
        "Solarize": lambda p: ImageOps.solarize(p, 256 - int(share * 256)),
        "TranslateX": affine(1, 0, shift, 0, 1, 0),
        "TranslateY": affine(1, 0, 0, 0, 1, shift),
    }[name]


def assert_every_choice_is_pillows(images):
    """Give every image every draw, in one batch that mixes all of them."""
    size = images.shape[-1]
    position = torch.arange(len(CHOICES)).repeat_interleave(len(images))
    made = RandAugment(size).apply_choice(images.repeat(len(CHOICES), 1, 1, 1), position)
    sources = [Image.fromarray(image) for image in to_hwc(images)]
    for (name, magnitude, sign), group in zip(CHOICES, made.split(len(images)), strict=True):
        operation = pillow_operation(name, magnitude, sign, size)
        expected = np.stack([np.asarray(operation(source)) for source in sources])
        assert np.array_equal(to_hwc(group), expected), (name, magnitude, sign)


@pytest.mark.parametrize("size", [32, 84])
def test_every_draw_does_what_pillow_does(size):
    assert_every_choice_is_pillows(pictures(12 if size == 32 else 3, size))


@pytest.mark.cifar
def test_every_draw_does_what_pillow_does_to_photographs():
    try:
        test = load_dataset("cifar100").test
    except DataError:
        pytest.skip("CIFAR-100 is not here")
    chosen = range(0, len(test), len(test) // 25)
    photographs = np.stack([test.images[index] for index in chosen])
    assert_every_choice_is_pillows(torch.from_numpy(photographs).permute(0, 3, 1, 2).contiguous())


def test_operations_magnitudes_and_signs_are_drawn_as_often_as_they_should():
    draws = 60_000
    choice = draw_choice(uniforms(12, 0, 0, draws, DRAWS_A_LAYER, "cpu"))
    assert {name for name, _, _ in CHOICES} == NAMES
    expected = np.array(
        [draws * (1 + 14 * (name == "Identity")) / 28 / 18 for name, _, _ in CHOICES]
    )
    counts = np.bincount(choice.numpy(), minlength=len(CHOICES))
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    drawn = [CHOICES[position] for position in choice.tolist()]
    for part in (1, 2):
        tally = collections.Counter(draw[part] for draw in drawn if draw[0] != "Identity")
        assert len(tally) == (9 if part == 1 else 2)
        assert stats.chisquare(list(tally.values())).pvalue > 1e-3


def test_the_two_layers_draw_independently():
    numbers = uniforms(1, 0, 0, 60_000, 2 * DRAWS_A_LAYER, "cpu")
    first, second = (draw_choice(half) // 18 for half in numbers.chunk(2, dim=1))
    table = np.histogram2d(first.numpy(), second.numpy(), bins=14)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize(("kind", "size", "channels"), [("cifar", 32, 3), ("digits", 8, 1)])
def test_strong_views_have_the_hosts_mean_and_spread(kind, size, channels):
    images = pictures(1200, size, channels)
    batch = BatchedAugment(kind, size, channels)(images, View.STRONG, 7, 0, 0)
    host = HostAugment(kind, size)
    rng = np.random.default_rng(1)
    reference = torch.from_numpy(
        np.stack([host.apply(image, View.STRONG, rng) for image in to_hwc(images)])
    )
    for statistic in (torch.mean, torch.std):
        ours, theirs = (
            torch.stack([statistic(view) for view in views.double()])
            for views in (batch, reference)
        )
        error = ((ours.var() + theirs.var()) / len(images)).sqrt()
        assert (ours.mean() - theirs.mean()).abs() < 4 * error


def test_cutout_covers_a_clipped_square_with_every_centre_equally_likely():
    black = torch.zeros(20_000, 1, 32, 32, dtype=torch.uint8)
    covered = cutout(black, uniforms(2, 0, 0, len(black), 2, "cpu"), 16) == 127
    area = covered.sum((1, 2, 3))
    # Along one side the square keeps 8 … 16 pixels: centre c shows pixels c − 8 … c + 7.
    kept = [min(c + 8, 32) - max(c - 8, 0) for c in range(32)]
    assert area.min() == min(kept) ** 2
    assert area.max() == 256
    expected = np.mean(kept) ** 2
    spread = np.sqrt(np.mean(np.square(kept)) ** 2 - expected**2)
    assert abs(area.double().mean() - expected) < 4 * spread / len(black) ** 0.5
    share = covered.double().mean((0, 1))
    assert share[16, 16] > share[0, 0] > 0


def test_strong_always_ends_with_grey():
    black = torch.zeros(500, 3, 32, 32, dtype=torch.uint8)
    made = BatchedAugment("cifar", 32, 3)(black, View.STRONG, 0, 0, 0)
    assert ((made == 127).all(1).sum((1, 2)) >= 64).all()


def test_weak_shows_flips_and_every_shift():
    """A picture whose pixels tell their place gives the drawn flip and shift away."""
    y, x = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    image = torch.stack([y, x, x]).to(torch.uint8)
    made = BatchedAugment("cifar", 32, 3)(image.expand(5000, -1, -1, -1), View.WEAK, 0, 0, 0)
    flipped = made[:, 1, 16, 16] < made[:, 1, 16, 15]
    assert stats.binomtest(int(flipped.sum()), 5000).pvalue > 1e-3
    for mirrored in (False, True):
        centres = made[flipped == mirrored, :2, 16, 16].tolist()
        seen = collections.Counter(tuple(centre) for centre in centres)
        across = range(11, 20) if mirrored else range(12, 21)
        assert set(seen) == {(row, column) for row in range(12, 21) for column in across}
        assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_flip_is_a_mirror_half_of_the_time():
    images = pictures(2000)
    made = BatchedAugment("cifar", 32, 3)(images, View.FLIP, 0, 0, 0)
    kept = (made == images).flatten(1).all(1)
    mirrored = (made == images.flip(3)).flatten(1).all(1)
    assert (kept ^ mirrored).all()
    assert stats.binomtest(int(mirrored.sum()), 2000).pvalue > 1e-3


def test_digits_are_never_mirrored():
    """An L keeps its foot on the right: its lower half stays to the right of its upper half."""
    letter = torch.zeros(8, 8, dtype=torch.uint8)
    letter[1:7, 3] = 255
    letter[6, 3:6] = 255
    images = letter.expand(2000, 1, 8, 8)
    augment = BatchedAugment("digits", 8, 1)
    assert torch.equal(augment(images, View.FLIP, 0, 0, 0), images)
    weak = augment(images, View.WEAK, 0, 0, 0)[:, 0].double()
    column = torch.arange(8.0, dtype=torch.float64)
    upper = (weak[:, :4].sum(1) * column).sum(1) / weak[:, :4].sum((1, 2))
    lower = (weak[:, 4:].sum(1) * column).sum(1) / weak[:, 4:].sum((1, 2))
    assert (lower > upper - 0.35).all()
    assert (lower - upper).mean() > 0.3


def test_plain_changes_nothing():
    images = pictures(10)
    assert torch.equal(BatchedAugment("cifar", 32, 3)(images, View.PLAIN, 0, 0, 0), images)


@pytest.mark.parametrize("view", [View.WEAK, View.STRONG])
def test_a_view_depends_on_seed_step_slot_and_position_alone(view):
    augment = BatchedAugment("cifar", 32, 3)
    images = pictures(60)
    before = images.clone()
    made = augment(images, view, 1, 2, 3)
    assert torch.equal(images, before)
    assert torch.equal(augment(images, view, 1, torch.tensor(2), 3), made)
    assert torch.equal(augment(images[:20], view, 1, 2, 3), made[:20])
    for other in [(9, 2, 3), (1, 9, 3), (1, 2, 9)]:
        assert (augment(images, view, *other) != made).flatten(1).any(1).float().mean() > 0.9
    twice = augment(images[:1].expand(60, -1, -1, -1), view, 1, 2, 3)
    assert len(torch.unique(twice, dim=0)) > 40


@pytest.mark.parametrize(("kind", "size", "channels"), [("cifar", 32, 3), ("digits", 8, 1)])
@pytest.mark.parametrize("view", list(View))
def test_nothing_is_read_back_by_the_host(kind, size, channels, view):
    """Fake tensors have no values, so anything that reads one fails here as it would in a graph."""
    augment = BatchedAugment(kind, size, channels)
    with FakeTensorMode(allow_non_fake_inputs=True):
        images = torch.zeros(6, channels, size, size, dtype=torch.uint8)
        step = torch.zeros((), dtype=torch.int64)
        assert augment(images, view, 0, step, 0).shape == images.shape


def test_an_empty_batch_stays_empty():
    for kind, size, channels in [("cifar", 32, 3), ("digits", 8, 1)]:
        images = torch.zeros(0, channels, size, size, dtype=torch.uint8)
        made = BatchedAugment(kind, size, channels)(images, View.STRONG, 0, 0, 0)
        assert made.shape == images.shape


def test_wrong_requests_are_refused():
    with pytest.raises(ConfigError, match="did you mean cifar"):
        BatchedAugment("cifra", 32, 3)
    with pytest.raises(ConfigError, match="only the host"):
        BatchedAugment("imagenet", 224, 3)
    with pytest.raises(ConfigError, match="1 or 3 channels"):
        BatchedAugment("cifar", 32, 4)
    with pytest.raises(DataError, match="got \\(2, 3, 28, 28\\)"):
        BatchedAugment("cifar", 32, 3)(pictures(2, 28), View.WEAK, 0, 0, 0)
    with pytest.raises(DataError, match="float32"):
        BatchedAugment("cifar", 32, 3)(pictures(2).float(), View.WEAK, 0, 0, 0)
