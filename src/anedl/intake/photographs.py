"""Photographs that Pillow cannot read by itself: HEIC from telephones, raw files from cameras.

HEIC is read where the package pillow-heif is installed. Raw files are not read at all: many of them
are TIFF files as well, of which Pillow would see no more than a thumbnail.
"""

import functools
import importlib

HEIC = (
    "it is a HEIC photo, which cannot be read here; convert it to JPEG or PNG, or install "
    "pillow-heif"
)
ODD_HEIC = "it is a HEIC photo, but not one that pillow-heif can read"
RAW = "it is a camera's raw file, which cannot be read here; convert it to JPEG or PNG"

HEIC_SUFFIXES = frozenset((".heic", ".heif", ".hif"))
RAW_SUFFIXES = frozenset(
    (
        ".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".gpr", ".iiq", ".kdc",
        ".mef", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".rwl", ".sr2", ".srf",
        ".srw", ".x3f",
    )
)  # fmt: skip
START = 64  # bytes of a file that tell its kind
_BRANDS = frozenset(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
)


def is_heic(start: bytes) -> bool:
    """Whether a file that begins so is HEIC; AVIF, which may call itself alike, is not."""
    return start[4:8] == b"ftyp" and start[8:12] in _BRANDS and b"avif" not in start[12:]


@functools.cache
def reads_heic() -> bool:
    """Whether HEIC can be read here; from then on Pillow knows how."""
    try:
        package = importlib.import_module("pillow_heif")
    except ImportError:
        return False
    package.register_heif_opener()
    return True
