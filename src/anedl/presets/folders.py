"""A small folder of real images as people have them: digits, strangers, copies and broken files.

`labelled/<zero … five>/*.png` holds a few images a class. `pile/` holds the other images of these
classes, all of six to nine, and what every real pile has: files that are no images, damaged ones,
copies, other formats, odd names. `truth.csv` says what each file of the pile is; it is there to
judge by afterwards, and nothing that trains reads it.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from anedl.data.dataset import IntArray, UInt8Array
from anedl.data.digits import load_digits
from anedl.errors import ConfigError
from anedl.files import write_text

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KNOWN = WORDS[:6]
FOREIGN = "foreign"  # an image, but of no digit
UNREADABLE = "unreadable"  # no image at all, or a damaged one
# A quarter of them calibrates: 39 fresh ones and 39 hidden in the pile, which certify exactly 5 %.
LABELLED_PER_CLASS = 52
COPIES = 12  # of pile images, and again of labelled ones


@dataclass(frozen=True)
class Folders:
    """Where everything was written."""

    labelled: Path
    pile: Path
    truth: Path


def digits_folders(out: Path) -> Folders:
    """Where `write_digits_folders` puts things below `out`."""
    return Folders(out / "labelled", out / "pile", out / "truth.csv")


def write_digits_folders(
    out: Path, labelled_per_class: int = LABELLED_PER_CLASS, seed: int = 0
) -> Folders:
    """Write the three below `out`, the same files for the same seed.

    Raises:
        ConfigError: `out` already has a pile, or there are not so many images of a class.
    """
    folders = digits_folders(out)
    if folders.pile.exists() or folders.labelled.exists():
        raise ConfigError(f"{out}: there are folders here already; choose another place")
    digits = load_digits().train
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(digits.labels))
    chosen = _first_of_each_class(order, digits.labels, labelled_per_class)
    for number in chosen:
        name = f"{number:04}.png"
        _save(folders.labelled / WORDS[digits.labels[number]] / name, _png(digits.images[number]))
    pile: dict[str, tuple[bytes, str]] = {}
    rest = np.setdiff1d(order, chosen)
    for number in rest:
        pile[f"{number:04}.png"] = (_png(digits.images[number]), WORDS[digits.labels[number]])
    for name, number in zip(_copy_names(), generator.choice(rest, COPIES), strict=False):
        pile[name] = (_png(digits.images[number]), WORDS[digits.labels[number]])
    for number in generator.choice(chosen, COPIES, replace=False):
        name = f"backup/{WORDS[digits.labels[number]]} {number:04} copy.png"
        pile[name] = (_png(digits.images[number]), WORDS[digits.labels[number]])
    pile |= dict(_odd_formats(digits.images[rest[0]], WORDS[digits.labels[rest[0]]]))
    pile |= dict(_foreign(generator))
    pile |= dict(_broken(_png(digits.images[rest[1]])))
    for name, (content, _) in pile.items():
        _save(folders.pile / name, content)
    write_truth(folders.truth, {name: truth for name, (_, truth) in pile.items()})
    return folders


def read_truth(path: Path) -> dict[str, str]:
    """What each file of the pile is, by its name below the pile."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["file"]: row["truth"] for row in csv.DictReader(file)}


def write_truth(path: Path, truth: dict[str, str]) -> None:
    """Write what each file of a pile is, for `read_truth`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "truth"])
    writer.writerows(sorted(truth.items()))
    write_text(path, text.getvalue())


def _first_of_each_class(order: IntArray, labels: IntArray, count: int) -> IntArray:
    positions = [order[labels[order] == label] for label in range(len(KNOWN))]
    most = min(map(len, positions)) - 1
    if not 1 <= count <= most:
        raise ConfigError(f"{count} labelled images a class: between 1 and {most} are possible")
    return np.concatenate([of_class[:count] for of_class in positions])


def _copy_names() -> list[str]:
    odd = ["it's a copy.png", 'so "called".png', "comma, and; more.png", "= 1 + 1.png", "NO_SUFFIX"]
    return [*odd, *(f"unsorted/copy {number}.PNG" for number in range(COPIES - len(odd)))]


def _odd_formats(image: UInt8Array, truth: str) -> Iterator[tuple[str, tuple[bytes, str]]]:
    """The same digit as an animation, with an alpha channel, with 16 bits a pixel."""
    grey = Image.fromarray(image[..., 0])
    other = Image.fromarray(255 - image[..., 0])
    yield "animated.gif", (_encoded(grey, "GIF", save_all=True, append_images=[other]), truth)
    see_through = Image.merge("LA", (grey, Image.new("L", grey.size, 255)))
    yield "alpha.png", (_encoded(see_through, "PNG"), truth)
    deep = Image.fromarray(image[..., 0].astype(np.uint16) * 257)
    yield "deep.png", (_encoded(deep, "PNG"), truth)


def _foreign(generator: np.random.Generator) -> Iterator[tuple[str, tuple[bytes, str]]]:
    """Pictures as a camera makes them, of no digit, in the formats cameras write."""
    for number in range(6):
        coarse = generator.integers(0, 256, (5, 5, 3), np.uint8)
        photo = Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC)
        if number < 2:
            yield f"DSC_{number:04}.jpg", (_encoded(photo.convert("CMYK"), "JPEG"), FOREIGN)
        else:
            yield f"photos/IMG {number}.jpeg", (_encoded(photo, "JPEG"), FOREIGN)
    grain = Image.fromarray(generator.integers(0, 256, (64, 64, 3), np.uint8))
    yield "noise.png", (_encoded(grain, "PNG"), FOREIGN)


def _broken(png: bytes) -> Iterator[tuple[str, tuple[bytes, str]]]:
    for name, content in {
        "empty.png": b"",
        "truncated.png": png[: len(png) // 2],
        "text.jpg": b"this is a note, whatever its name says\n" * 5,
        "notes.txt": b"remember to label the sevens\n",
        ".DS_Store": b"\0\0\0\1Bud1" + bytes(64),
        "damaged/header.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
    }.items():
        yield name, (content, UNREADABLE)


def _png(image: UInt8Array) -> bytes:
    return _encoded(Image.fromarray(image[..., 0]), "PNG")


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _save(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
