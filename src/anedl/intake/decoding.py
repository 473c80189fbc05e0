"""Decoding a file that may be anything: the pixels a person would see, or one sentence why not.

Whatever a file holds becomes (height, width, 3) uint8: turned upright as its EXIF orientation says,
the first frame of an animation, the first page of a document. Transparent parts show white, as on a
sheet of paper: the colours stored underneath were never meant to be seen. Grey and 16-bit images
keep their range, CMYK is converted without a colour profile.

A camera of 12 bits may store its values in files of 16 and leave the highest bits empty. Nothing in
such a file tells it from a dark picture, and brightening each by its own values would make them
incomparable, so it comes out dark; `decode_deep` says how many bits it uses.

Nothing here blocks or runs another program: pipes and devices are not opened, and formats that
Pillow hands to an interpreter (EPS, WMF) are refused. What needs more than Pillow is the subject of
`photographs`.
"""

import errno
import functools
import logging
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from anedl.data.dataset import UInt8Array, to_rgb
from anedl.errors import DataError
from anedl.intake.names import shown
from anedl.intake.photographs import (
    HEIC,
    HEIC_SUFFIXES,
    ODD_HEIC,
    RAW,
    RAW_SUFFIXES,
    START,
    is_heic,
    reads_heic,
)

MOST_PIXELS = 120_000_000  # the largest cameras make 102 million; decoding takes 8 bytes a pixel
ORIENTATION = 0x0112  # the EXIF tag

# EPS and WMF are drawings that another program has to run; the others Pillow knows by name only.
_REFUSED = {"EPS", "WMF", "BUFR", "GRIB", "HDF5", "MPEG"}
# Formats that begin with a signature: bytes that pass for one of these are one.
_SIGNED = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "PSD", "QOI", "TIFF", "WEBP")

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_TROUBLES = {
    errno.ENOENT: "the file is not there (removed since it was listed, or a link to nothing)",
    errno.ENOTDIR: "the file is not there (a part of its path is no folder)",
    errno.EACCES: "the file may not be read (permission denied)",
    errno.EPERM: "the file may not be read (permission denied)",
    errno.ELOOP: "the link leads back to itself",
    errno.ENAMETOOLONG: "the name is longer than this system allows",
}


class UnreadableError(DataError):
    """A file without an image that can be used; `reason` is one sentence, without the name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{shown(str(path))}: {reason}")
        self.reason = reason


def decode(path: Path) -> UInt8Array:
    """The image in a file as it should be seen: (height, width, 3) uint8, writable.

    Raises:
        UnreadableError: there is no such image; the message says why in one sentence.
    """
    return decode_deep(path)[0]


def decode_deep(path: Path) -> tuple[UInt8Array, int]:
    """What `decode` returns, and how many bits the values take in a file of 16 bits; otherwise 0.

    Raises:
        UnreadableError: as `decode` does.
    """
    with _opened(path) as image:
        deep = _is_deep(image)
        image.load()
        depth = _used_bits(image) if deep else 0
        pixels = _visible_colours(image)
        # After loading: Pillow turns some formats by itself and then forgets the orientation.
        upright = _turned(pixels, _orientation(image))
    return np.ascontiguousarray(upright), depth


def header_size(path: Path) -> tuple[int, int]:
    """Width and height of the upright image, from the header alone.

    Raises:
        UnreadableError: there is no image; what the header promises may still fail to decode.
    """
    with _opened(path) as image:
        width, height = image.size
        swapped = image.format != "TIFF" and _orientation(image) >= 5
    return (height, width) if swapped else (width, height)


def holds_image(path: Path) -> bool:
    """Whether a file's first bytes are those of a common image format, whatever its name.

    It may yet be one that cannot be read here.
    """
    try:
        with _opened(path, _SIGNED):
            return True
    except UnreadableError as error:
        return error.reason in (HEIC, ODD_HEIC)


@functools.cache
def image_suffixes() -> frozenset[str]:
    """The endings (".jpg" …) of images, of photographs that cannot be read here among them."""
    with _QUIET:
        formats = _readable_formats()  # first, for it may make further endings known
        known = Image.registered_extensions()
    readable = {suffix for suffix, name in known.items() if name in formats}
    return HEIC_SUFFIXES | RAW_SUFFIXES | readable


@functools.cache
def _readable_formats() -> tuple[str, ...]:
    Image.init()
    reads_heic()
    return tuple(name for name in Image.ID if name not in _REFUSED)


@contextmanager
def _opened(path: Path, formats: tuple[str, ...] | None = None) -> Iterator[Image.Image]:
    """The image in a file, its header read and believable; every failure is Unreadable."""
    is_raw = path.suffix.lower() in RAW_SUFFIXES
    start = b""
    try:
        with _QUIET, _open_regular(path) as file:
            start = file.read(START)
            known = formats if formats is not None else _readable_formats()
            if is_raw:  # unless it is an ordinary image under such a name
                known = tuple(name for name in _SIGNED if name != "TIFF")
            # A file object, not a path: by path Pillow may map the file, and die if it shrinks.
            with Image.open(file, formats=known) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise UnreadableError(path, _too_large(f"{width} × {height} pixels"))
                yield image
    except UnreadableError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableError(path, _unidentified(is_raw, start)) from error
    except Exception as error:
        # Damaged headers make the decoders stumble in ways no list of exceptions covers.
        raise UnreadableError(path, _sentence(error)) from error


def _unidentified(is_raw: bool, start: bytes) -> str:
    """What is known of a file that begins so and that Pillow does not know."""
    if is_raw:
        return RAW
    if is_heic(start):
        return ODD_HEIC if reads_heic() else HEIC
    return "its content is not an image of any format known here"


def _open_regular(path: Path) -> BinaryIO:
    """Open a plain file for reading; anything else is refused unopened, for it might block."""
    if "\0" in str(path):
        raise UnreadableError(path, "the name holds a character that no file name may have")
    _refuse_special(path, path.stat().st_mode)
    # Should a pipe have taken the file's place just now, opening it must still not wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        _refuse_special(path, status.st_mode)
        if status.st_size == 0:
            raise UnreadableError(path, "the file is empty (0 bytes)")
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((kind for test, kind in _KINDS if test(mode)), "something special")
        raise UnreadableError(path, f"it is {kind}, not a file")


def _visible_colours(image: Image.Image) -> UInt8Array:
    """The loaded image as (height, width, 3) uint8, transparent parts white."""
    deep = image.mode.startswith(("I", "F"))  # grey beyond 8 bits, which has no alpha to speak of
    if deep or not image.has_transparency_data:
        return to_rgb(image)
    paper = Image.new("RGBA", image.size, "white")
    paper.alpha_composite(image.convert("RGBA"))
    return np.array(paper.convert("RGB"))


def _is_deep(image: Image.Image) -> bool:
    """Whether a file holds 16 bits a channel; to be asked before the image is loaded."""
    if image.mode.startswith("I"):
        return True
    # Pillow has no mode for colours of 16 bits: it keeps the upper half of what is stored so.
    return any(";16" in str(tile[3]) for tile in getattr(image, "tile", ()) if len(tile) > 3)


def _used_bits(image: Image.Image) -> int:
    """Bits that the greatest value of a loaded image of 16 bits a channel takes, alpha left out."""
    if image.mode.startswith("I"):
        return int(np.asarray(image).max(initial=0)).bit_length()
    colours = np.asarray(image.convert("RGB")).max(initial=0)  # the upper eight of 16 bits
    return int(colours).bit_length() + 8 if colours else 0


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:
        return 1  # the camera's notes are damaged; the picture need not be
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _turned(pixels: UInt8Array, orientation: int) -> UInt8Array:
    """Undo an EXIF orientation: 5…8 are stored with rows for columns, then mirrored or not."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _sentence(error: Exception) -> str:
    """What an exception means for the reader of a table."""
    if isinstance(error, OSError) and error.errno in _TROUBLES:
        return _TROUBLES[error.errno]
    if isinstance(error, Image.DecompressionBombError):
        return _too_large("far more pixels")
    if isinstance(error, MemoryError):
        return "decoding it takes more memory than there is"
    text = shown(" ".join(str(error).split()))[:160] or type(error).__name__
    if "truncated" in text.lower():
        return f"the image is cut short ({text})"
    return f"the image is damaged or of an unusual kind ({text})"


def _too_large(what: str) -> str:
    return f"its header declares {what}, beyond the limit of {MOST_PIXELS // 10**6} million"


class _Quiet:
    """Silences warnings while any thread is inside: a pile of odd files would fill the terminal.

    `warnings.catch_warnings` alone restores the wrong filters when threads leave it in another
    order than they came.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._catch: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._catch = warnings.catch_warnings()
                self._catch.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._catch is not None:
                self._catch.__exit__(kind, error, trace)
                self._catch = None


_QUIET = _Quiet()
# Pillow logs some damage as errors, which without any handler end up on the terminal.
logging.getLogger("PIL").addHandler(logging.NullHandler())
