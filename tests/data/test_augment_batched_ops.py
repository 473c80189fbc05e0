"""Each operation on a batch equals Pillow's on every image of it, each with its own parameter."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from anedl.data.augment import batched_geometry as geometry
from anedl.data.augment import batched_ops as ops


def structured_images(size=32, channels=3, seed=0):
    """Noise, narrow noise, gradients, constant, two-level and nearly black images, (N, C, H, W)."""
    rng = np.random.default_rng(seed)
    shape = (12, channels, size, size)
    flat = rng.integers(0, 256, (12, channels, 1, 1))
    other = rng.integers(0, 256, (12, channels, 1, 1))
    ramp = np.linspace(0, 1, size)
    share = rng.random((12, 1, 1, 1))
    groups = [
        rng.integers(0, 256, shape),
        flat + rng.integers(-6, 7, shape),
        flat * ramp + other * ramp[:, None] / 4,
        np.broadcast_to(flat, shape),
        np.where(rng.random(shape) < share, flat, other),
        rng.integers(0, 256, shape) * (rng.random(shape) < 0.01),
    ]
    return torch.from_numpy(np.concatenate([g.clip(0, 255).astype(np.uint8) for g in groups]))


def pictures_of(images):
    for image in images.numpy():
        yield Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def with_pillow(images, operation, *parameters):
    """Apply `operation(picture, parameter...)` to each image in turn."""
    made = []
    for number, picture in enumerate(pictures_of(images)):
        array = np.asarray(operation(picture, *(values[number].item() for values in parameters)))
        made.append(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
    return torch.from_numpy(np.stack(made))


def mapped(images, tables):
    return ops.lookup(tables, images.flatten(2).long()).view(images.shape)


def histogram(images):
    return ops.histogram_of(images.flatten(2).long())


@pytest.fixture(params=[(32, 3), (32, 1), (9, 3)], ids=lambda p: f"{p[0]}px-{p[1]}ch")
def images(request):
    return structured_images(*request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_autocontrast(images):
    assert torch.equal(
        mapped(images, ops.autocontrast_tables(histogram(images))),
        with_pillow(images, ImageOps.autocontrast),
    )


def test_autocontrast_of_many_ranges():
    """1,500 pairs of a lowest and a highest level, with every level between them present."""
    rng = np.random.default_rng(0)
    low, high = np.triu_indices(256, 1)
    pick = rng.permutation(len(low))[:1500]
    ramp = np.arange(256).reshape(1, 16, 16)
    images = np.clip(ramp, low[pick, None, None], high[pick, None, None]).astype(np.uint8)[:, None]
    images = torch.from_numpy(images)
    assert torch.equal(
        mapped(images, ops.autocontrast_tables(histogram(images))),
        with_pillow(images, ImageOps.autocontrast),
    )


def test_equalize(images):
    tables = ops.equalize_tables(histogram(images))
    assert torch.equal(mapped(images, tables), with_pillow(images, ImageOps.equalize))


def test_posterize(images, rng):
    bits = torch.from_numpy(rng.integers(1, 9, len(images)))
    expected = with_pillow(images, ImageOps.posterize, bits)
    assert torch.equal(mapped(images, ops.posterize_tables(bits)), expected)


def test_solarize(images, rng):
    threshold = torch.from_numpy(rng.integers(0, 257, len(images)))
    expected = with_pillow(images, ImageOps.solarize, threshold)
    assert torch.equal(mapped(images, ops.solarize_tables(threshold)), expected)


def factors(count, rng):
    """The nine of RandAugment and some beyond the image, where the blend must clip."""
    nine = 0.05 + 0.09 * rng.integers(1, 10, count)
    return torch.from_numpy(
        np.where(rng.random(count) < 0.7, nine, rng.uniform(0, 2, count))
    ).float()


def enhance(enhancer):
    return lambda picture, factor: enhancer(picture).enhance(factor)


def test_brightness(images, rng):
    factor = factors(len(images), rng)
    expected = with_pillow(images, enhance(ImageEnhance.Brightness), factor)
    assert torch.equal(mapped(images, ops.brightness_tables(factor)), expected)


def test_contrast(images, rng):
    factor = factors(len(images), rng)
    expected = with_pillow(images, enhance(ImageEnhance.Contrast), factor)
    tables = ops.contrast_tables(ops.luminance(images), factor)
    assert torch.equal(mapped(images, tables), expected)


def test_color(images, rng):
    factor = factors(len(images), rng)
    expected = with_pillow(images, enhance(ImageEnhance.Color), factor)
    blended = ops.blend(ops.luminance(images), images, ops.per_image(factor, 4))
    assert torch.equal(blended, expected)


def test_sharpness(images, rng):
    factor = factors(len(images), rng)
    expected = with_pillow(images, enhance(ImageEnhance.Sharpness), factor)
    blended = ops.blend(ops.smooth(images), images, ops.per_image(factor, 4))
    assert torch.equal(blended, expected)


def test_blend_of_every_pair_of_levels():
    levels = torch.arange(256, dtype=torch.uint8)
    first, second = levels[:, None].expand(256, 256), levels.expand(256, 256)
    for factor in [0.05 + 0.9 * v / 10 for v in range(11)] + [0.0, 0.333, 1.0, 1.4, 2.5]:
        expected = np.asarray(
            Image.blend(Image.fromarray(first.numpy()), Image.fromarray(second.numpy()), factor)
        )
        blended = ops.blend(first, second, torch.tensor(factor, dtype=torch.float32))
        assert np.array_equal(blended.numpy(), expected), factor


def test_luminance_of_the_colour_cube():
    axis = np.concatenate([np.arange(0, 256, 9), [254, 255]])
    cube = np.stack(np.meshgrid(axis, axis, axis), -1).astype(np.uint8).reshape(len(axis), -1, 3)
    expected = np.asarray(Image.fromarray(cube).convert("L"))
    grey = ops.luminance(torch.from_numpy(cube).permute(2, 0, 1)[None])
    assert np.array_equal(grey[0, 0].numpy(), expected)


def test_smooth_keeps_the_border(images):
    smoothed = ops.smooth(images)
    assert torch.equal(
        smoothed, with_pillow(images, lambda picture: picture.filter(ImageFilter.SMOOTH))
    )
    assert torch.equal(smoothed[..., 0], images[..., 0])


@pytest.mark.parametrize("size", [8, 32, 33, 84])
def test_rotation_takes_pillows_source_pixels(size):
    images = structured_images(size, 1)[:12]
    for degrees in [*range(-30, 31), 45, 137.5, 200.25, 359]:
        fixed = torch.tensor(geometry.fixed_point(geometry.rotation(degrees, size)))
        turned = geometry.affine_nearest(images, fixed.int().expand(len(images), 6))
        expected = with_pillow(images, lambda picture: picture.rotate(degrees))  # noqa: B023
        assert torch.equal(turned, expected), degrees


@pytest.mark.parametrize("size", [8, 32, 33])
def test_affine_nearest_with_a_transform_an_image(size):
    images = structured_images(size)
    rng = np.random.default_rng(size)
    transforms = np.array([1, 0, 0, 0, 1, 0]) + rng.normal(0, 0.2, (len(images), 6))
    transforms[:, [2, 5]] *= size
    transforms[:10] = [1, 0.27, 0, 0, 1, 0]
    transforms[10:20] = [1, 0, 0, -0.09, 1, 0]
    transforms[20:30] = [1, 0, -5, 0, 1, 0]
    transforms[30:40] = [1, 0, 0, 0, 1, 3]
    fixed = torch.tensor([geometry.fixed_point(tuple(row)) for row in transforms]).int()
    expected = with_pillow(
        images,
        lambda picture, row: picture.transform(
            picture.size, Image.Transform.AFFINE, tuple(transforms[row])
        ),
        torch.arange(len(images)),
    )
    assert torch.equal(geometry.affine_nearest(images, fixed), expected)


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (32, 3)])
def test_affine_bilinear_with_a_transform_an_image(size, channels):
    images = structured_images(size, channels)
    rng = np.random.default_rng(size)
    transforms = np.array([1, 0, 0, 0, 1, 0]) + rng.normal(0, 0.2, (len(images), 6))
    transforms[:, [2, 5]] *= size / 2
    transforms[0] = [1, 0, 0, 0, 1, 0]
    transforms[1] = [1, 0, 0.5, 0, 1, -1]
    expected = with_pillow(
        images,
        lambda picture, row: picture.transform(
            picture.size,
            Image.Transform.AFFINE,
            tuple(transforms[row]),
            Image.Resampling.BILINEAR,
        ),
        torch.arange(len(images)),
    )
    assert torch.equal(geometry.affine_bilinear(images, torch.from_numpy(transforms)), expected)


@pytest.mark.parametrize(("size", "pad"), [(32, 4), (84, 10), (8, 1), (9, 8)])
def test_flip_and_crop_is_a_crop_of_the_reflected_image(size, pad):
    images = structured_images(size)
    rng = np.random.default_rng(0)
    flip = torch.from_numpy(rng.random(len(images)) < 0.5)
    left, top = torch.from_numpy(rng.integers(0, 2 * pad + 1, (2, len(images))))
    made = geometry.flip_and_crop(images, flip, left, top, pad)
    for number, image in enumerate(images.numpy()):
        image = image[:, :, ::-1] if flip[number] else image
        padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        x, y = int(left[number]), int(top[number])
        assert np.array_equal(made[number].numpy(), padded[:, y : y + size, x : x + size])


def test_paste_square_is_clipped_at_every_edge():
    corners = torch.arange(-20, 34)
    left, top = torch.cartesian_prod(corners, corners).T
    images = torch.zeros(len(left), 1, 32, 32, dtype=torch.uint8)
    covered = geometry.paste_square(images, left, top, 16, 127)
    expected = np.zeros(covered.shape, np.uint8)
    for square, x, y in zip(expected, left.tolist(), top.tolist(), strict=True):
        square[:, max(y, 0) : max(y + 16, 0), max(x, 0) : max(x + 16, 0)] = 127
    assert np.array_equal(covered.numpy(), expected)
    assert not images.any(), "the images themselves must stay"
