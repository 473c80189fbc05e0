"""Views of one image at a time, made on the host with PIL.

What each view is, by the kind of images:

- cifar, small: PLAIN is the image; FLIP mirrors it half of the time; WEAK flips, pads by reflection
  with side/8 pixels on each edge (4 for 32, 10 for 84) and crops at random; STRONG is WEAK, two
  random operations (`rand_augment`), and a cutout of half the side (16 for 32).
- imagenet: resize to 8/7 of the side (256 for 224); PLAIN crops the centre, FLIP does so after a
  flip, WEAK flips and crops at random, STRONG is WEAK, two random operations and a cutout of half
  the side.
- digits: never mirrored, so FLIP is PLAIN, the image. WEAK is a small affine change: rotation
  ±10°, scale 0.9…1.1, shift by −1, 0 or 1 pixel either way. STRONG is a larger one (rotation ±25°,
  shear ±0.2, scale 0.8…1.2, shift ±1.5 pixels), then contrast and brightness times 0.6…1.4 and a
  cutout of 3 pixels. Pixels are eighths of the side. Bilinear, black outside.

Cutout fills a square with grey 127, centred at a pixel drawn uniformly and clipped at the edges. An
image that does not have the wanted size is first resized to it (bilinear, aspect ratio not kept).
"""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from anedl.data.augment import host_ops
from anedl.data.augment.host_ops import MAGNITUDES, OPERATIONS
from anedl.data.dataset import UInt8Array
from anedl.errors import ConfigError, unknown_name
from anedl.views import View

KINDS = ("cifar", "digits", "imagenet", "small")
OPERATIONS_A_VIEW = 2
OPERATION_PROBABILITY = 0.5
CUTOUT_GREY = 127


def view_generator(
    run_seed: int, epoch: int, image_index: int, view_slot: int
) -> np.random.Generator:
    """Random numbers for one view of one image, the same whoever asks for them and when.

    `epoch` counts the passes over the images: where one image comes up several times in an epoch,
    count each time as a pass of its own. `view_slot` tells apart the views made of an image in one
    pass. The four numbers (each 0 ≤ n < 2⁶⁴) are the key and the upper half of the counter of a
    Philox generator, so streams never overlap and no state is shared; making one takes about 20 µs.
    """
    key = np.array([run_seed, epoch], dtype=np.uint64)
    counter = np.array([0, 0, image_index, view_slot], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


@dataclass(frozen=True)
class HostAugment:
    """Makes views of images of one kind ("cifar", "small", "imagenet" or "digits").

    `size` is the side of what comes out, in pixels.
    """

    kind: str
    size: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of augmentation", self.kind, KINDS)
        if self.size < 8:
            raise ConfigError(f"images must be at least 8 pixels wide, got {self.size}")

    def framed(self, image: UInt8Array) -> UInt8Array:
        """The image at the size that views are cut from; `apply` then need not resize it again."""
        return _resized(image, self.size * 8 // 7 if self.kind == "imagenet" else self.size)

    def apply(self, image: UInt8Array, view: View, rng: np.random.Generator) -> UInt8Array:
        """Make one view of one image.

        `image` is (height, width, channels) uint8 with 1 or 3 channels; the view is a new array
        (size, size, channels) uint8.
        """
        frame = self.framed(image)
        if self.kind == "digits":
            return np.array(frame) if view in (View.PLAIN, View.FLIP) else _digit(frame, view, rng)

        if view is not View.PLAIN and rng.random() < 0.5:
            frame = frame[:, ::-1]
        if view in (View.PLAIN, View.FLIP):
            start = (len(frame) - self.size) // 2
            return np.array(frame[start : start + self.size, start : start + self.size], order="C")
        if self.kind == "imagenet":
            cropped = _random_crop(frame, self.size, rng)
        else:
            cropped = _random_reflect_crop(frame, self.size // 8, rng)
        if view is View.WEAK:
            return cropped
        return cutout(rand_augment(cropped, rng), self.size // 2, rng)


def draw_operations(rng: np.random.Generator, side: int) -> list[tuple[str, float]]:
    """Draw two operations with replacement; each stays with probability one half.

    Returns (name, parameter) of those that stay, in order. Every magnitude from 1 to 9 is equally
    likely. The same amount of random numbers is used whatever comes out.
    """
    names = tuple(OPERATIONS)
    drawn = []
    for choice, level, stays, sign in rng.random((OPERATIONS_A_VIEW, 4)).tolist():
        if stays < OPERATION_PROBABILITY:
            name = names[int(choice * len(names))]
            operation = OPERATIONS[name]
            parameter = operation.parameter(MAGNITUDES[int(level * len(MAGNITUDES))], side)
            negate = operation.signed and sign < 0.5
            drawn.append((name, -parameter if negate else parameter))
    return drawn


def rand_augment(image: UInt8Array, rng: np.random.Generator) -> UInt8Array:
    """Apply the operations of `draw_operations` to a square image (side, side, channels)."""
    drawn = draw_operations(rng, len(image))
    if not drawn:
        return image
    picture = _to_picture(image)
    for name, parameter in drawn:
        picture = OPERATIONS[name].apply(picture, parameter)
    return _to_array(picture)


def cutout(image: UInt8Array, side: int, rng: np.random.Generator) -> UInt8Array:
    """Cover a square of `side` pixels with grey, clipped at the edges; changes `image` in place.

    Its centre is any pixel with equal probability; it reaches from centre − side // 2 up to, not
    including, centre − side // 2 + side.
    """
    height, width = image.shape[:2]
    top = int(rng.random() * height) - side // 2
    left = int(rng.random() * width) - side // 2
    image[max(top, 0) : top + side, max(left, 0) : left + side] = CUTOUT_GREY
    return image


def _digit(image: UInt8Array, view: View, rng: np.random.Generator) -> UInt8Array:
    """Make the weak or the strong view of a digit, which must not be mirrored."""
    side = len(image)
    pixel = side / 8
    if view is View.WEAK:
        shift = pixel * rng.integers(-1, 2, size=2)
        matrix = _affine_matrix(
            rotation=rng.uniform(-10, 10),
            scale=rng.uniform(0.9, 1.1),
            shear=0.0,
            shift=(shift[0], shift[1]),
            centre=side / 2,
        )
    else:
        shift = pixel * rng.uniform(-1.5, 1.5, size=2)
        matrix = _affine_matrix(
            rotation=rng.uniform(-25, 25),
            scale=rng.uniform(0.8, 1.2),
            shear=rng.uniform(-0.2, 0.2),
            shift=(shift[0], shift[1]),
            centre=side / 2,
        )
    picture = _to_picture(image).transform(
        (side, side), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
    )
    if view is View.WEAK:
        return _to_array(picture)
    picture = host_ops.contrast(picture, rng.uniform(0.6, 1.4))
    picture = host_ops.brightness(picture, rng.uniform(0.6, 1.4))
    return cutout(_to_array(picture), side * 3 // 8, rng)


def _affine_matrix(
    rotation: float, scale: float, shear: float, shift: tuple[float, float], centre: float
) -> tuple[float, float, float, float, float, float]:
    """The two rows, from output to input, that PIL wants for an affine change about the centre.

    Forward: out = R·S·(in − centre)·scale + centre + shift, with R the rotation by `rotation`
    degrees and S = ((1, shear), (0, 1)).
    """
    cos, sin = math.cos(math.radians(rotation)), math.sin(math.radians(rotation))
    # (R·S·scale)⁻¹ = S⁻¹·Rᵀ / scale with S⁻¹ = ((1, −shear), (0, 1)).
    a, b = (cos + shear * sin) / scale, (sin - shear * cos) / scale
    d, e = -sin / scale, cos / scale
    x, y = centre + shift[0], centre + shift[1]
    return a, b, centre - a * x - b * y, d, e, centre - d * x - e * y


def _random_reflect_crop(image: UInt8Array, pad: int, rng: np.random.Generator) -> UInt8Array:
    """Pad a square image by reflection (the edge itself is not repeated), crop to its old size."""
    last = len(image) - 1
    offsets = (rng.random(2) * (2 * pad + 1)).astype(np.int64) - pad
    # Position −1 shows pixel 1, position last + 1 shows pixel last − 1.
    rows, columns = (last - np.abs(last - np.abs(np.arange(last + 1) + o)) for o in offsets)
    cropped: UInt8Array = image.take(rows, axis=0).take(columns, axis=1)
    return cropped


def _random_crop(image: UInt8Array, size: int, rng: np.random.Generator) -> UInt8Array:
    """Cut a square of `size` pixels out of a square image, anywhere."""
    top, left = (rng.random(2) * (len(image) - size + 1)).astype(np.int64)
    return np.array(image[top : top + size, left : left + size], order="C")


def _resized(image: UInt8Array, size: int) -> UInt8Array:
    if image.shape[:2] == (size, size):
        return image
    return _to_array(_to_picture(image).resize((size, size), Image.Resampling.BILINEAR))


def _to_picture(image: UInt8Array) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def _to_array(picture: Image.Image) -> UInt8Array:
    array: UInt8Array = np.array(picture)
    return array[:, :, None] if array.ndim == 2 else array
