import json
from pathlib import Path

import numpy as np
import pytest

from anedl.intake.cache import ImageCache
from anedl.intake.findings import Repeats, SizeRange, describe, find
from anedl.intake.index import Entry
from anedl.intake.listing import Item, Skipped
from anedl.intake.partition import Partition


def entry(path, label, width=40, digest=None, reason=""):
    name = f"{path}.png"
    item = Item(path=Path(name), name=name, label=label)
    return Entry(item, None, width, 30, digest or name, 0, reason)


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
    assert findings.pile_like == {"labelled": 2, "validation": 2, "calibration": 0}
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
        "dog/0.png; one of the labels is probably wrong",
        "note: 2 pile images like a validation or calibration image: sorted in the end but kept "
        "out of training",
    ]


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
