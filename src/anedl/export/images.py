"""Images as Python hands them over: paths, Pillow images and arrays of any size, in any mixture."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from anedl.data.dataset import UInt8Array, to_rgb
from anedl.errors import DataError
from anedl.export.predictor import BasePredictor, Predictions
from anedl.intake.decoding import UnreadableError, decode
from anedl.intake.names import shown

AnImage = str | PathLike[str] | Image.Image | npt.NDArray[np.uint8]


def classify(
    predictor: BasePredictor, images: AnImage | Iterable[AnImage] | npt.NDArray[np.uint8]
) -> Predictions:
    """Judge images in order, holding no more than a batch of them at once.

    `images` are paths, Pillow images and uint8 arrays, (H, W), (H, W, C) or (N, H, W, C) with one
    or three channels; or one of these alone.

    Raises:
        DataError: a file holds no image that can be read, or an array is not an image.
    """
    return Predictions.joined([predictor.judge(frames) for frames in framed(predictor, images)])


def framed(
    predictor: BasePredictor, images: AnImage | Iterable[AnImage] | npt.NDArray[np.uint8]
) -> Iterator[UInt8Array]:
    """Frames (n, side, side, 3) of the images, a batch at a time; one of none where there are none.

    Raises:
        DataError: a file holds no image that can be read, or an array is not an image.
    """
    coming = (predictor.framing.frame(image) for image in each(images))
    side = predictor.framing.side
    frames = list(islice(coming, predictor.batch_size))
    yield np.stack(frames) if frames else np.zeros((0, side, side, 3), np.uint8)
    while frames := list(islice(coming, predictor.batch_size)):
        yield np.stack(frames)


def each(images: AnImage | Iterable[AnImage]) -> Iterator[UInt8Array]:
    """Every image as (h, w, 3) uint8."""
    if isinstance(images, str | PathLike):
        yield of_file(Path(images))
    elif isinstance(images, Image.Image):
        yield of_picture(images)
    elif isinstance(images, np.ndarray) and images.dtype.kind in "UO":
        paths: list[Any] = images.ravel().tolist()  # as a column of a table gives them
        yield from each(paths)
    elif isinstance(images, np.ndarray):
        yield from of_array(images)
    elif _is_tensor(images):
        raise DataError(
            "an image is a path, a Pillow image or a uint8 array, not a torch tensor: give "
            "`tensor.cpu().numpy()`, with values in 0…255 as uint8 and the channels last"
        )
    elif isinstance(images, Iterable):
        for image in images:
            yield from each(image)
    else:
        raise DataError(
            f"an image is a path, a Pillow image or a uint8 array, not {type(images).__name__}"
        )


def of_file(path: Path) -> UInt8Array:
    """The image in a file."""
    try:
        return decode(path)
    except UnreadableError as error:
        if not path.is_dir():
            raise
        raise DataError(
            f"{shown(str(path))}: a folder; name its files, such as "
            f"`sorted(Path(…).rglob('*.jpg'))`, or judge it by `anedl predict`"
        ) from error


def _is_tensor(images: object) -> bool:
    torch = sys.modules.get("torch")  # an exported model is computed without it
    return torch is not None and isinstance(images, torch.Tensor)


def of_picture(picture: Image.Image) -> UInt8Array:
    """A Pillow image as it should be seen: upright, transparent parts white."""
    upright = ImageOps.exif_transpose(picture)
    if upright.has_transparency_data:
        paper = Image.new("RGBA", upright.size, "white")
        paper.alpha_composite(upright.convert("RGBA"))
        upright = paper.convert("RGB")
    try:
        return to_rgb(upright)
    except ValueError as error:
        raise DataError(f"a Pillow image of mode {picture.mode}: {error}") from error


def of_array(array: npt.NDArray[np.uint8]) -> Iterator[UInt8Array]:
    """The images of an array (H, W), (H, W, C) or (N, H, W, C)."""
    if array.dtype != np.uint8:
        raise DataError(
            f"an array of images holds uint8 in 0…255, not {array.dtype}: scale and convert it"
        )
    batch = array[None, :, :, None] if array.ndim == 2 else array
    batch = batch[None] if batch.ndim == 3 else batch
    if batch.ndim != 4 or batch.shape[3] not in (1, 3):
        raise DataError(
            f"an array of shape {array.shape}: images are (H, W), (H, W, C) or (N, H, W, C) with "
            "1 or 3 channels last"
        )
    if 0 in batch.shape[1:3]:
        raise DataError(f"an array of shape {array.shape}: an image without pixels")
    for image in batch:
        yield np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
