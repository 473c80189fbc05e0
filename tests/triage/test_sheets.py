"""Contact sheets show the right images, whatever their shape, and never fail for one of them."""

import numpy as np
import pytest
from PIL import Image

from anedl.data.dataset import ArrayImages
from anedl.errors import DataError
from anedl.triage import sheets
from anedl.triage.clusters import Cluster
from anedl.triage.sheets import COLUMNS, GAP, MARGIN, ROWS, SIDE, spread_out, write_sheets


def cluster_of(members, number=1, nearest="cat"):
    return Cluster(number, np.asarray(members), int(members[0]), nearest, 0.1, 1000)


def tile(sheet, place, columns=COLUMNS):
    row, column = divmod(place, columns)
    top = sheet.height - MARGIN - -(-60 // COLUMNS) * (SIDE + GAP) + GAP
    left = MARGIN + column * (SIDE + GAP)
    upper = top + row * (SIDE + GAP)
    return np.asarray(sheet.crop((left, upper, left + SIDE, upper + SIDE)))


def test_at_most_sixty_evenly_spread():
    members = np.arange(212) + 7
    chosen = spread_out(members, 60)
    assert len(set(chosen)) == 60
    assert (chosen[0], chosen[-1]) == (members[0], members[-1])
    assert np.diff(chosen).max() <= 4
    np.testing.assert_array_equal(spread_out(members[:5], 60), members[:5])


def test_the_members_are_what_is_shown(tmp_path):
    """Image n is one flat colour that says n, so every tile can be read back."""
    pixels = np.zeros((300, 16, 16, 3), np.uint8)
    pixels[..., 0] = (np.arange(300) % 256)[:, None, None]
    pixels[..., 1] = (np.arange(300) // 256 * 100)[:, None, None]
    members = np.arange(299, 99, -1)
    (path,) = write_sheets(tmp_path / "clusters", [cluster_of(members)], ArrayImages(pixels))
    assert path == tmp_path / "clusters" / "cluster-01.png"
    with Image.open(path) as sheet:
        assert sheet.mode == "RGB"
        for place, member in enumerate(spread_out(members, COLUMNS * ROWS)):
            np.testing.assert_array_equal(tile(sheet, place)[64, 64], pixels[member, 0, 0])


def test_sheets_of_an_earlier_triage_go(tmp_path):
    images = ArrayImages(np.full((4, 8, 8, 1), 9, np.uint8))
    write_sheets(tmp_path, [cluster_of([0, 1], 1), cluster_of([2, 3], 2)], images)
    (tmp_path / "notes.png").touch()
    write_sheets(tmp_path, [cluster_of([0, 1], 1)], images)
    assert {path.name for path in tmp_path.iterdir()} == {"cluster-01.png", "notes.png"}


class Odd:
    """Images of every shape; one is gone."""

    shapes = (
        (1, 1, 1),
        (10, 20_000, 3),
        (2_000, 3, 1),
        (64, 64, 3),
        None,
        (300, 200, 3),
        (5, 5, 3),
    )

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, index):
        if self.shapes[index] is None:
            raise DataError("the image is not there")
        return np.full(self.shapes[index], 90, np.uint8)


def test_odd_images_and_names_do_no_harm(tmp_path):
    cluster = cluster_of(np.arange(7), 12, "a very long name\nof a class " * 40)
    (path,) = write_sheets(tmp_path, [cluster], Odd())
    assert path.name == "cluster-12.png"
    with Image.open(path) as sheet:
        assert sheet.width == 2 * MARGIN + 7 * (SIDE + GAP) - GAP
        assert len(sheet.getcolors(1 << 20)) > 3


def test_without_a_system_font_letters_become_bare_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sheets, "_system_font", lambda: None)
    sheets._font.cache_clear()
    assert sheets._fitting("Käse 日本", 14, 500) == "Kase ??"
    assert sheets._fitting("m" * 500, 14, 100).endswith("m...")
    (path,) = write_sheets(tmp_path, [cluster_of([0], nearest="Käse 日本")], Odd())
    assert path.stat().st_size > 500
    sheets._font.cache_clear()


@pytest.mark.parametrize("count", [1, 5, 10, 11, 60])
def test_sheets_are_as_large_as_they_need_be(tmp_path, count):
    images = ArrayImages(np.full((count, 8, 8, 1), 9, np.uint8))
    (path,) = write_sheets(tmp_path, [cluster_of(np.arange(count))], images)
    with Image.open(path) as sheet:
        columns = min(10, max(5, count))
        rows = -(-count // columns)
        assert sheet.width == 2 * MARGIN + columns * (SIDE + GAP) - GAP
        assert rows * SIDE < sheet.height < rows * (SIDE + GAP) + 150
