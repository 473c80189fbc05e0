import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anedl.intake.cache import ImageCache
from anedl.intake.describing import describe, warnings
from anedl.intake.findings import Repeats, SizeRange, find, write_skipped
from anedl.intake.index import Entry
from anedl.intake.listing import Item, Skipped
from anedl.intake.partition import Partition


def entry(path, label, width=40, digest=None, reason="", depth=0):
    name = f"{path}.png"
    item = Item(path=Path(name), name=name, label=label)
    return Entry(item, None, width, 30, digest or name, 0, reason, depth)


@pytest.fixture
def cache(tmp_path):
    """Sixteen labelled images, three of the other class, a broken one, and a pile of six."""
    cats = [entry(f"cat/{n}", "cat", 40 + n) for n in range(16)]
    dogs = [entry(f"dog/{n}", "dog", 10, "twin" if n else None) for n in range(3)]
    broken = [entry("dog/9", "dog", reason="the file is empty (0 bytes)")]
    pile = [entry(f"pile/{n}", None, 99, "twin" if n < 2 else None) for n in range(6)]
    return ImageCache(tmp_path, 8, [*cats, *dogs, *broken, *pile])


@pytest.fixture
def findings(cache):
    groups = np.full(25, -1)
    groups[[17, 18, 19, 20]] = 1  # the twins: two dogs, two of the pile
    groups[[0, 16]] = 0  # a cat and a dog
    groups[[5, 21, 22]] = 2  # a cat that validates, two of the pile
    roles = Partition(np.array([0, *range(6, 19)]), np.array([1, 2, 5]), np.array([3, 4]))
    skipped = [Skipped("pile/notes.txt", "not an image by its name, nor by its content")] * 2
    return find(cache, groups, skipped, roles)


def test_facts(findings):
    assert findings.class_counts == {"cat": 16, "dog": 3}
    assert findings.pile == 6
    assert findings.labelled_sizes == SizeRange((10, 46, 55), (30, 30, 30))
    assert findings.pile_sizes == SizeRange((99, 99, 99), (30, 30, 30))
    assert (findings.skipped_labelled, findings.skipped_pile) == (1, 2)
    assert list(findings.skipped_reasons.values()) == [2, 1]
    assert findings.exact == Repeats(labelled=1, pile=1, across=2)
    assert findings.near == Repeats(labelled=2, pile=2, across=4)
    assert findings.conflicts == [["cat/0.png", "dog/0.png"]]
    assert findings.roles == {
        "labelled": {"cat": 11, "dog": 3},
        "validation": {"cat": 3},
        "calibration": {"cat": 2},
    }
    assert findings.pile_like == {"labelled": 2, "validation": 2, "fresh": 0, "decoys": 0}
    assert findings.withheld == 2


def test_description(findings):
    assert describe(findings).splitlines() == [
        "labelled: 19 images in 2 classes",
        "  cat      16  (11 train, 3 validate, 2 calibrate)",
        "  dog       3  (3 train, 0 validate, 0 calibrate)",
        "  10 to 55 (median 46) pixels wide, 30 high",
        "pile: 6 images",
        "  all 99 × 30 pixels",
        "skipped: 3 files (1 labelled, 2 in the pile)",
        "       2  not an image by its name, nor by its content",
        "       1  the file is empty (0 bytes)",
        "exact duplicates: 1 extra copy among the labelled, 1 in the pile; 2 pile images also "
        "labelled",
        "near-duplicates, these included: 2 extra copies among the labelled, 2 in the pile; "
        "4 pile images also labelled (2 like some that train, 2 like some that validate)",
        "note: the classes are uneven: 'cat' has 16 images, 'dog' 3; accuracy on 'dog' is "
        "measured least well",
        "note: fewer than 10 images to train on: 'dog' (3); a few more labels there help more "
        "than anything else",
        "note: 1 group of near-duplicates under different labels, such as cat/0.png and "
        "dog/0.png; one of the labels is probably wrong; if such images do differ (a camera that "
        "never moves, say), --near-distance 0 takes only equal pixels for copies",
        "note: 2 pile images like a validation or fresh calibration image: sorted in the end but "
        "kept out of training",
    ]


def test_copies_of_fresh_and_of_hidden_images_are_counted_apart(cache):
    groups = np.full(25, -1)
    groups[[3, 19, 20]] = 0  # calibrates, and two of the pile
    groups[[4, 21, 22, 23]] = 1  # calibrates hidden in the pile, and three of it
    roles = Partition(np.array([0, *range(5, 19)]), np.array([1, 2]), np.array([3, 4]))
    found = find(cache, groups, roles=roles, decoys=np.array([4]))
    assert found.pile_like == {"labelled": 0, "validation": 0, "fresh": 2, "decoys": 3}
    assert found.withheld == 2
    text = describe(found)
    assert "(2 like fresh ones that calibrate, 3 like hidden ones that calibrate)" in text
    assert "note: 2 pile images like a validation or fresh calibration image" in text


@pytest.mark.parametrize(("reasons", "rest"), [(5, 0), (6, 0), (7, 2), (9, 4)])
def test_reasons_are_counted_together_only_where_that_saves_a_line(findings, reasons, rest):
    skipped = {f"reason {number}": 1 for number in range(reasons)}
    text = describe(replace(findings, skipped_reasons=skipped))
    assert sum("  reason " in line for line in text.splitlines()) == reasons - rest
    assert (f"{rest}  for other reasons" in text) == bool(rest)


def test_nothing_amiss(tmp_path):
    entries = [entry(f"{label}/{n}", label) for label in "ab" for n in range(12)]
    cache = ImageCache(tmp_path, 8, [*entries, entry("pile/0", None)])
    assert describe(find(cache, np.full(25, -1))).splitlines() == [
        "labelled: 24 images in 2 classes",
        "  a      12",
        "  b      12",
        "  all 40 × 30 pixels",
        "pile: 1 image",
        "  all 40 × 30 pixels",
        "skipped: nothing, every file could be read",
        "duplicates: none",
    ]


def test_a_class_without_a_readable_image_is_told(tmp_path):
    entries = [entry(f"a/{n}", "a") for n in range(12)]
    broken = entry("b/0", "b", reason="the file is empty (0 bytes)")
    findings = find(ImageCache(tmp_path, 8, [*entries, broken]), np.full(12, -1))
    assert findings.class_counts == {"a": 12, "b": 0}
    assert "fewer than 10 images to train on: 'b' (0)" in describe(findings)


def test_very_many_classes_do_not_fill_the_terminal(tmp_path):
    entries = [entry(f"{n}/{m}", f"{n:04}") for n in range(500) for m in range(10)]
    text = describe(find(ImageCache(tmp_path, 8, entries), np.full(5000, -1)))
    assert len(text.splitlines()) < 50
    assert "labelled: 5,000 images in 500 classes" in text
    assert "and 460 more classes" in text


def test_nothing_at_all(tmp_path):
    text = describe(find(ImageCache(tmp_path, 8, []), np.zeros(0, np.int64)))
    assert text.startswith("labelled: 0 images in 0 classes\npile: 0 images")


def test_json(findings):
    again = json.loads(json.dumps(findings.to_json()))
    assert again["class_counts"] == {"cat": 16, "dog": 3}
    assert again["near"] == {"labelled": 2, "pile": 2, "across": 4}
    assert again["labelled_sizes"]["width"] == [10, 46, 55]


def test_equal_pixels_under_two_labels_are_a_wrong_label_whatever_the_distance(tmp_path):
    entries = [entry(f"{label}/{n}", label) for label in "ab" for n in range(12)]
    entries += [entry("a/x", "a", digest="same"), entry("b/x", "b", digest="same")]
    groups = np.full(26, -1)
    groups[24:] = 0
    (told,) = warnings(find(ImageCache(tmp_path, 8, entries), groups))
    assert told.endswith("such as a/x.png and b/x.png; one of the labels is probably wrong")


@pytest.mark.parametrize(("withheld", "loud"), [(2, False), (3, True), (6, True)])
def test_a_pile_mostly_kept_out_of_training_is_told_loudly(findings, withheld, loud):
    text = describe(replace(findings, withheld=withheld))
    told = f"WARNING: {withheld} of the 6 pile images are like a validation or fresh calibration"
    assert (told in text) == loud
    assert (f"note: {withheld} pile images like a validation" in text) != loud
    assert (text.count("--near-distance 0") == 2) == loud  # once for the labels in conflict
    # Equal pixels are copies in any case: there is no distance to change any more.
    exact = describe(replace(findings, withheld=withheld, near_distance=0, exact_conflicts=1))
    assert "--near-distance" not in exact


def test_files_of_sixteen_bits_that_use_the_low_ones_are_counted(tmp_path):
    depths = [0, 12, 11, 15, 16, 0, 9]
    entries = [entry(f"pile/{n}", None, depth=depth) for n, depth in enumerate(depths)]
    findings = find(ImageCache(tmp_path, 8, entries), np.full(7, -1))
    assert (findings.low_bits, findings.lowest_bits) == (3, 12)
    (told,) = warnings(findings)
    # 4095 of 65535 is 15.9 of 255.
    assert told.startswith("3 files of 16 bits a pixel with only the lowest 12 in use")
    assert "16 of 255 at most" in told
    assert not warnings(find(ImageCache(tmp_path, 8, entries[3:6]), np.full(3, -1)))


def test_classes_without_any_image_are_not_called_uneven(tmp_path):
    broken = [entry(f"{label}/0", label, reason="the file is empty (0 bytes)") for label in "ab"]
    text = describe(find(ImageCache(tmp_path, 8, broken), np.zeros(0, np.int64)))
    assert "uneven" not in text
    assert "fewer than 10 images to train on: 'a' (0), 'b' (0)" in text


def test_no_cell_of_the_skipped_files_is_a_formula(tmp_path):
    names = ['=HYPERLINK("http:a").jpg', "+1.png", "-2.png", "@x.png", "'quoted.png", "plain.png"]
    write_skipped(tmp_path / "skipped.csv", [Skipped(name, "=1+1") for name in names])
    with (tmp_path / "skipped.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    for row, name in zip(rows, names, strict=True):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
        assert row[1] in (name, f"'{name}")
    assert rows[-1][1] == "plain.png"
    assert rows[-2][1] == "''quoted.png"  # one apostrophe away, and it is as it was
