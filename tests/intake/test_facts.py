from pathlib import Path

from PIL import Image

from anedl.intake.facts import image_sizes
from anedl.intake.listing import Item


def test_sizes_come_from_headers_turned_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg")
    Image.new("RGB", (30, 20)).save(tmp_path / "b.jpg", exif=turned)
    Image.new("RGB", (30, 20)).save(tmp_path / "c.tiff", exif=turned)
    whole = tmp_path / "d.png"
    Image.new("RGB", (400, 300), "red").save(whole)
    whole.write_bytes(whole.read_bytes()[:100])  # the header is there, most of the image is not
    (tmp_path / "e.jpg").write_bytes(b"no image")
    items = [Item(path, path.name) for path in sorted(tmp_path.iterdir())]
    sizes = image_sizes([*items, Item(Path("gone.png"), "gone.png")])
    assert sizes.width.tolist() == [30, 20, 20, 400]
    assert sizes.height.tolist() == [20, 30, 30, 300]
    assert sizes.unreadable == 2
    assert len(sizes) == 4
    assert sizes.median_short_side == 20


def test_a_sample_is_spread_over_the_whole_list(tmp_path):
    items = []
    for side in range(1, 101):
        path = tmp_path / f"{side}.bmp"
        Image.new("L", (side, side)).save(path)
        items.append(Item(path, path.name))
    sizes = image_sizes(items, sample=5)
    assert sizes.width.tolist() == [1, 26, 51, 75, 100]
    assert sizes.median_short_side == 51


def test_no_images_no_size():
    sizes = image_sizes([])
    assert len(sizes) == 0
    assert sizes.median_short_side == 0
