"""Contact sheets: what the images of a cluster look like, as one PNG a cluster."""

import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from anedl.data.dataset import Images, IntArray, UInt8Array
from anedl.errors import DataError
from anedl.files import replacing
from anedl.triage.clusters import Cluster
from anedl.triage.verdict import one_line

COLUMNS, ROWS = 10, 6
SIDE, GAP, MARGIN = 128, 8, 16  # pixels
TITLE_HEIGHT, LINE_HEIGHT = 30, 22
# Of the systems' own fonts, those with the most letters; Pillow's built-in one has English only.
FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf")
PAPER, INK, FAINT, EMPTY = "#FFFFFF", "#1A1A1A", "#666666", "#EFEFEF"
LARGEST_ENLARGEMENT = 16  # a tiny image is shown pixel by pixel, yet not as one flat colour


def write_sheets(folder: Path, clusters: Sequence[Cluster], images: Images) -> list[Path]:
    """Write `cluster-01.png` and so on; `images` is the pile, by the positions of the members."""
    paths = []
    for cluster in clusters:
        path = folder / f"{cluster_name(cluster.number)}.png"
        title = f"Cluster {cluster.number}: {cluster.sentence}"
        chosen = spread_out(cluster.members, COLUMNS * ROWS)
        caption = (
            f"Nearest known class: {one_line(cluster.nearest_class)}; "
            f"{len(chosen)} shown, most typical first"
        )
        sheet = draw_sheet(images, chosen, title, caption)
        with replacing(path) as temporary:
            sheet.save(temporary, format="png", optimize=True)
        paths.append(path)
    for stale in set(folder.glob("cluster-*.png")) - set(paths):
        stale.unlink()  # of an earlier triage that found more clusters
    return paths


def cluster_name(number: int) -> str:
    """The name of a cluster's sheet and of its folder; they sort as the clusters do."""
    return f"cluster-{number:02}"


def spread_out(members: IntArray, count: int) -> IntArray:
    """At most `count` of the members, evenly from the most to the least typical."""
    if len(members) <= count:
        return members
    return members[np.linspace(0, len(members) - 1, count).round().astype(np.int64)]


def draw_sheet(images: Images, chosen: IntArray, title: str, caption: str) -> Image.Image:
    """Thumbnails in rows under a title and a caption; one image is in memory at a time."""
    columns = min(COLUMNS, max(5, len(chosen)))
    rows = -(-len(chosen) // columns)
    top = MARGIN + TITLE_HEIGHT + LINE_HEIGHT + GAP
    width = 2 * MARGIN + columns * (SIDE + GAP) - GAP
    sheet = Image.new("RGB", (width, top + rows * (SIDE + GAP) - GAP + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    room = width - 2 * MARGIN
    draw.text((MARGIN, MARGIN), _fitting(title, 20, room), INK, _font(20))
    draw.text((MARGIN, MARGIN + TITLE_HEIGHT), _fitting(caption, 14, room), FAINT, _font(14))
    for place, index in enumerate(chosen):
        row, column = divmod(place, columns)
        corner = (MARGIN + column * (SIDE + GAP), top + row * (SIDE + GAP))
        try:
            thumbnail = _thumbnail(images[int(index)])
        except DataError:
            draw.rectangle((*corner, corner[0] + SIDE - 1, corner[1] + SIDE - 1), EMPTY)
            draw.text((corner[0] + 28, corner[1] + 54), "unreadable", FAINT, _font(14))
            continue
        sheet.paste(thumbnail, corner)
    return sheet


def _thumbnail(pixels: UInt8Array) -> Image.Image:
    """The whole image on a square, small ones enlarged pixel by pixel."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    scale = min(SIDE / max(image.size), LARGEST_ENLARGEMENT)
    scale = float(int(scale)) if scale >= 2 else scale  # all pixels are enlarged alike
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    how = Image.Resampling.NEAREST if scale >= 2 else Image.Resampling.LANCZOS
    tile = Image.new("RGB", (SIDE, SIDE), EMPTY)
    tile.paste(image.resize(size, how), ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
    return tile


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    name = _system_font()
    return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)


@cache
def _system_font() -> str | None:
    for name in FONTS:
        with suppress(OSError):
            ImageFont.truetype(name)
            return name
    return None


def _fitting(text: str, size: int, room: int) -> str:
    """The text in letters that the font has, cut where it is too long for the sheet."""
    if _system_font() is None:
        letters = (c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        text = "".join(letters).encode("ascii", "replace").decode()
    if _font(size).getlength(text) <= room:
        return text
    while text and _font(size).getlength(f"{text}...") > room:
        text = text[:-1]
    return f"{text}..."
