"""The operations of the strong view: each a pure function (image, parameter) → image, size kept.

This is the reference for any other implementation, so it says to the last bit what each one does.
Images are PIL images of mode RGB or L. In the table v is the magnitude, p the parameter, n the
image's side in pixels, i one byte of one channel, ± a random sign; // rounds down, trunc drops the
fraction.

| operation    | parameter p      | result                                                         |
|--------------|------------------|----------------------------------------------------------------|
| AutoContrast | –                | trunc(i·c + (−lo·c)) clipped to 0…255, with c = 255 / (hi−lo)  |
|              |                  | in float64; lo and hi are the channel's extremes; i if lo = hi |
| Brightness   | 0.05 + 0.09·v    | blend(0, i)                                                    |
| Color        | 0.05 + 0.09·v    | blend(grey, i)                                                 |
| Contrast     | 0.05 + 0.09·v    | blend(mean of grey over the image, rounded half up; i)         |
| Equalize     | –                | (step // 2 + how many bytes of the channel are < i) // step,   |
|              |                  | step = (n² − how often the greatest byte occurs) // 255;       |
|              |                  | 255 where that is more, i if step = 0                          |
| Identity     | –                | i                                                              |
| Posterize    | 4 + 4·v // 10    | the upper p bits of i, the others 0                            |
| Rotate       | ±3·v degrees     | turned about the centre, counter-clockwise if p > 0            |
| Sharpness    | 0.05 + 0.09·v    | blend(smooth, i)                                               |
| ShearX       | ±0.03·v          | (x, y) shows the point (x + p·y, y)                            |
| ShearY       | ±0.03·v          | (x, y) shows the point (x, y + p·x)                            |
| Solarize     | 256 − 256·v // 10 | i if i < p, else 255 − i                                      |
| TranslateX   | ±(3·v·n // 100)  | (x, y) shows the point (x + p, y)                              |
| TranslateY   | ±(3·v·n // 100)  | (x, y) shows the point (x, y + p)                              |

blend(base, i) = trunc(base + p·(i − base)) in float32.
grey = (19595·R + 38470·G + 7471·B + 32768) >> 16; an L image is its own grey.
smooth = the 3×3 kernel (1 1 1, 1 5 1, 1 1 1) / 13, rounded half up; the outermost pixels are kept.

Geometry is nearest neighbour with the origin at the image's corner, black outside: an output pixel
shows the input pixel that holds the point which the matrix makes of its centre (x + ½, y + ½). For
Rotate and the shears, in Pillow's fixed-point arithmetic: with f(r) = floor(65536·r + ½) and a
matrix row (a, b, c), the input coordinate is (f(a)·x + f(b)·y + f(c + a/2 + b/2)) >> 16. Rotate has
the rows (cos p, −sin p, c₁) and (sin p, cos p, c₂), sines and cosines rounded to 15 decimals, with
c₁ and c₂ such that the centre (n/2, n/2) stays.
"""

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image, ImageEnhance, ImageOps

# Magnitudes are drawn from 1…9; ten is the scale they are divided by, and never occurs.
MAGNITUDES = range(1, 10)

Coefficients = tuple[float, float, float, float, float, float]


def _affine(image: Image.Image, coefficients: Coefficients) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.NEAREST
    )


def auto_contrast(image: Image.Image, parameter: float) -> Image.Image:
    """Stretch each channel to the full range; the parameter is not used."""
    return ImageOps.autocontrast(image)


def brightness(image: Image.Image, factor: float) -> Image.Image:
    """Blend with black: 0 is black, 1 the image."""
    return ImageEnhance.Brightness(image).enhance(factor)


def color(image: Image.Image, factor: float) -> Image.Image:
    """Blend with the grey image: 0 is grey, 1 the image."""
    return ImageEnhance.Color(image).enhance(factor)


def contrast(image: Image.Image, factor: float) -> Image.Image:
    """Blend with the mean grey level: 0 is flat, 1 the image."""
    return ImageEnhance.Contrast(image).enhance(factor)


def equalize(image: Image.Image, parameter: float) -> Image.Image:
    """Flatten the histogram of each channel; the parameter is not used."""
    return ImageOps.equalize(image)


def identity(image: Image.Image, parameter: float) -> Image.Image:
    """Return the image; the parameter is not used."""
    return image


def posterize(image: Image.Image, bits: float) -> Image.Image:
    """Keep the upper `bits` (1…8) bits of every byte."""
    return ImageOps.posterize(image, int(bits))


def rotate(image: Image.Image, degrees: float) -> Image.Image:
    """Turn about the centre, counter-clockwise for positive degrees."""
    return image.rotate(degrees, Image.Resampling.NEAREST)


def sharpness(image: Image.Image, factor: float) -> Image.Image:
    """Blend with the smoothed image: 0 is smooth, 1 the image."""
    return ImageEnhance.Sharpness(image).enhance(factor)


def shear_x(image: Image.Image, slope: float) -> Image.Image:
    """Shift row y by slope·y pixels to the left."""
    return _affine(image, (1, slope, 0, 0, 1, 0))


def shear_y(image: Image.Image, slope: float) -> Image.Image:
    """Shift column x by slope·x pixels upwards."""
    return _affine(image, (1, 0, 0, slope, 1, 0))


def solarize(image: Image.Image, threshold: float) -> Image.Image:
    """Invert every byte of at least `threshold`."""
    return ImageOps.solarize(image, int(threshold))


def translate_x(image: Image.Image, pixels: float) -> Image.Image:
    """Shift to the left by whole pixels."""
    return _affine(image, (1, 0, int(pixels), 0, 1, 0))


def translate_y(image: Image.Image, pixels: float) -> Image.Image:
    """Shift upwards by whole pixels."""
    return _affine(image, (1, 0, 0, 0, 1, int(pixels)))


@dataclass(frozen=True)
class Operation:
    """One operation: what it does, and its parameter for a magnitude and an image side.

    Where `signed`, the parameter is negated half of the time.
    """

    apply: Callable[[Image.Image, float], Image.Image]
    parameter: Callable[[int, int], float]
    signed: bool = False


def _none(magnitude: int, side: int) -> float:
    return 0.0


def _factor(magnitude: int, side: int) -> float:
    return 0.05 + 0.9 * magnitude / 10


def _slope(magnitude: int, side: int) -> float:
    return magnitude / 10 * 0.3


def _pixels(magnitude: int, side: int) -> float:
    return 3 * magnitude * side // 100


# In alphabetical order: the position is the number that is drawn.
OPERATIONS: dict[str, Operation] = {
    "AutoContrast": Operation(auto_contrast, _none),
    "Brightness": Operation(brightness, _factor),
    "Color": Operation(color, _factor),
    "Contrast": Operation(contrast, _factor),
    "Equalize": Operation(equalize, _none),
    "Identity": Operation(identity, _none),
    "Posterize": Operation(posterize, lambda magnitude, side: 4 + 4 * magnitude // 10),
    "Rotate": Operation(rotate, lambda magnitude, side: 3 * magnitude, signed=True),
    "Sharpness": Operation(sharpness, _factor),
    "ShearX": Operation(shear_x, _slope, signed=True),
    "ShearY": Operation(shear_y, _slope, signed=True),
    "Solarize": Operation(solarize, lambda magnitude, side: 256 - 256 * magnitude // 10),
    "TranslateX": Operation(translate_x, _pixels, signed=True),
    "TranslateY": Operation(translate_y, _pixels, signed=True),
}
