"""Pictures for the page: thumbnails from the run's image cache, and whole images from their files.

Whatever a file holds, the page gets pixels that were decoded and encoded again here: nothing of the
file itself reaches the browser.
"""

import io
import threading
from collections import OrderedDict
from pathlib import Path

from PIL import Image

from anedl.data.dataset import UInt8Array
from anedl.intake.decoding import decode

SMALL = 64  # frames up to this side are enlarged pixel by pixel, so that the pixels stay sharp
SHOWN = 128  # the side they are enlarged to, at least
LARGEST = 2048  # the longer side of a whole image
KEPT_BYTES = 64 * 2**20

Picture = tuple[bytes, str]
"""An encoded image and its media type."""


def thumbnail(frame: UInt8Array) -> Picture:
    """A frame (side, side, 3) of the cache, encoded."""
    image = Image.fromarray(frame)
    side = max(image.size)
    if side > SMALL:
        return _encoded(image, "JPEG")
    scale = -(-SHOWN // side)
    size = (image.width * scale, image.height * scale)
    return _encoded(image.resize(size, Image.Resampling.NEAREST), "PNG")


def whole_image(path: Path) -> Picture:
    """The image in a file, upright, as large as a screen needs it.

    Raises:
        DataError: it cannot be decoded (any more).
    """
    image = Image.fromarray(decode(path))
    if max(image.size) > LARGEST:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    return _encoded(image, "PNG" if max(image.size) <= 4 * SMALL else "JPEG")


class PictureCache:
    """The pictures asked for last, up to so many bytes; safe for several threads."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self.bytes = 0
        self._most = most_bytes
        self._pictures: OrderedDict[int, Picture] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, number: int) -> Picture | None:
        """The picture of a number, if it is still there."""
        with self._lock:
            if (picture := self._pictures.get(number)) is not None:
                self._pictures.move_to_end(number)
            return picture

    def put(self, number: int, picture: Picture) -> None:
        """Keep a picture, and let the ones go that were not asked for longest."""
        with self._lock:
            if number in self._pictures:
                return
            self._pictures[number] = picture
            self.bytes += len(picture[0])
            while self.bytes > self._most and len(self._pictures) > 1:
                _, (old, _) = self._pictures.popitem(last=False)
                self.bytes -= len(old)


def _encoded(image: Image.Image, form: str) -> Picture:
    file = io.BytesIO()
    if form == "JPEG":
        image.save(file, "JPEG", quality=88)
    else:
        image.save(file, "PNG", compress_level=3)
    return file.getvalue(), f"image/{form.lower()}"
