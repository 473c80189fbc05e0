import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anedl.data.cifar import (
    CIFAR10,
    CIFAR10_CLASSES,
    CIFAR100,
    CIFAR100_CLASSES,
    CIFAR100_COARSE,
    CIFAR100_COARSE_CLASSES,
    load_cifar,
)
from anedl.data.sources import data_root, load_dataset
from anedl.errors import DataError

# The same sets with few images a file; CIFAR-100 keeps more than one block of records.
SMALL10 = replace(CIFAR10, images_per_train_file=12, images_per_test_file=7)
SMALL100 = replace(CIFAR100, images_per_train_file=1030, images_per_test_file=9)

FAMILIES = """
aquatic_mammals: beaver dolphin otter seal whale
fish: aquarium_fish flatfish ray shark trout
flowers: orchid poppy rose sunflower tulip
food_containers: bottle bowl can cup plate
fruit_and_vegetables: apple mushroom orange pear sweet_pepper
household_electrical_devices: clock keyboard lamp telephone television
household_furniture: bed chair couch table wardrobe
insects: bee beetle butterfly caterpillar cockroach
large_carnivores: bear leopard lion tiger wolf
large_man-made_outdoor_things: bridge castle house road skyscraper
large_natural_outdoor_scenes: cloud forest mountain plain sea
large_omnivores_and_herbivores: camel cattle chimpanzee elephant kangaroo
medium_mammals: fox porcupine possum raccoon skunk
non-insect_invertebrates: crab lobster snail spider worm
people: baby boy girl man woman
reptiles: crocodile dinosaur lizard snake turtle
small_mammals: hamster mouse rabbit shrew squirrel
trees: maple_tree oak_tree palm_tree pine_tree willow_tree
vehicles_1: bicycle bus motorcycle pickup_truck train
vehicles_2: lawn_mower rocket streetcar tank tractor
"""


def string(text: bytes) -> bytes:
    """A Python 2 string in pickle protocol 2."""
    return b"T" + struct.pack("<I", len(text)) + text


def integers(values) -> bytes:
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def array(pixels: np.ndarray, fortran: bool = False) -> bytes:
    """A uint8 table as numpy 1 under Python 2 pickled it."""
    kind = b"cnumpy\ndtype\n" + string(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    rows, columns = pixels.shape
    shape = b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b")
    raw = string(pixels.tobytes("F" if fortran else "C"))
    return empty + b"\x87R(K\x01" + shape + kind + (b"\x88" if fortran else b"\x89") + raw + b"tb"


def batch(entries: dict[bytes, bytes]) -> bytes:
    items = b"".join(string(key) + value for key, value in entries.items())
    return b"\x80\x02}(" + items + b"u."


def make_records(cifar, count: int, seed: int) -> np.ndarray:
    """Random binary records with labels that are allowed."""
    rng = np.random.default_rng(seed)
    records = rng.integers(0, 256, (count, len(cifar.pickle_keys) + 3072), dtype=np.uint8)
    fine = rng.integers(0, len(cifar.class_names), count)
    records[:, len(cifar.pickle_keys) - 1] = fine
    if cifar.coarse:
        records[:, 0] = np.array(cifar.coarse)[fine]
    return records


def file_counts(cifar, layout) -> list[tuple[str, int]]:
    train = [(name, cifar.images_per_train_file) for name in layout.train]
    return [*train, (layout.test, cifar.images_per_test_file)]


def write_binary(cifar, root: Path) -> list[np.ndarray]:
    folder = root / cifar.binary.folder
    folder.mkdir(parents=True)
    written = []
    for seed, (name, count) in enumerate(file_counts(cifar, cifar.binary)):
        written.append(make_records(cifar, count, seed))
        (folder / name).write_bytes(written[-1].tobytes())
    return written


def write_python(cifar, root: Path, fortran: bool = False) -> None:
    folder = root / cifar.python.folder
    folder.mkdir(parents=True)
    width = len(cifar.pickle_keys)
    for seed, (name, count) in enumerate(file_counts(cifar, cifar.python)):
        records = make_records(cifar, count, seed)
        entries = {b"batch_label": string(b"a batch"), b"data": array(records[:, width:], fortran)}
        for column, key in enumerate(cifar.pickle_keys):
            entries[key.encode()] = integers(records[:, column])
        (folder / name).write_bytes(batch(entries))


@pytest.mark.parametrize("cifar", [SMALL10, SMALL100], ids=["cifar10", "cifar100"])
def test_binary_records_become_images_in_order(tmp_path, cifar):
    written = write_binary(cifar, tmp_path)
    dataset = load_cifar(cifar, tmp_path)
    train, test = np.concatenate(written[:-1]), written[-1]
    width = len(cifar.pickle_keys)
    for part, records in ((dataset.train, train), (dataset.test, test)):
        pixels = part.images.pixels
        assert pixels.shape == (len(records), 32, 32, 3)
        assert pixels.flags.c_contiguous
        np.testing.assert_array_equal(part.labels, records[:, width - 1])
        assert part.labels.dtype == np.int64
        for index, row, column, channel in [(0, 0, 0, 0), (3, 5, 31, 1), (-1, 31, 2, 2)]:
            byte = records[index, width + 1024 * channel + 32 * row + column]
            assert pixels[index, row, column, channel] == byte
        total = records[:, width:].astype(int)
        np.testing.assert_array_equal(pixels.astype(int).sum((1, 2, 3)), total.sum(1))
    assert dataset.name == cifar.name
    assert dataset.class_names == cifar.class_names


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("cifar", [SMALL10, SMALL100], ids=["cifar10", "cifar100"])
def test_both_layouts_give_the_same(tmp_path, cifar, fortran):
    write_binary(cifar, tmp_path / "binary")
    write_python(cifar, tmp_path / "python", fortran)
    binary = load_cifar(cifar, tmp_path / "binary")
    python = load_cifar(cifar, tmp_path / "python")
    for part in ("train", "test"):
        one, other = getattr(binary, part), getattr(python, part)
        np.testing.assert_array_equal(one.images.pixels, other.images.pixels)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert other.images.pixels.flags.c_contiguous
        assert other.images.pixels.flags.writeable
    assert (binary.name, binary.class_names) == (python.name, python.class_names)


def test_complete_layout_is_preferred_to_a_broken_one(tmp_path):
    write_binary(SMALL10, tmp_path)
    write_python(SMALL10, tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    assert len(load_cifar(SMALL10, tmp_path).train) == 60


def test_layout_folder_itself_may_be_named(tmp_path):
    write_binary(SMALL100, tmp_path)
    assert len(load_cifar(SMALL100, tmp_path / "cifar-100-binary").test) == 9


def test_nothing_there_says_where_it_looked(tmp_path):
    with pytest.raises(DataError, match=r"cifar-100-binary/ and .*`anedl data fetch cifar100`"):
        load_cifar(CIFAR100, tmp_path)


def test_missing_file_is_named(tmp_path):
    write_binary(SMALL10, tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    with pytest.raises(DataError, match=r"test_batch\.bin: the file is missing.*fetch cifar10`"):
        load_cifar(SMALL10, tmp_path)


@pytest.mark.parametrize("change", [-1, 1, 3074])
def test_wrong_size_is_named(tmp_path, change):
    write_binary(SMALL100, tmp_path)
    path = tmp_path / "cifar-100-binary" / "train.bin"
    path.write_bytes((path.read_bytes() + bytes(3074))[: 1030 * 3074 + change])
    with pytest.raises(DataError, match=r"train\.bin: .* bytes where .*fetch cifar100`"):
        load_cifar(SMALL100, tmp_path)


@pytest.mark.parametrize(
    ("cifar", "byte", "value", "message"),
    [
        (SMALL10, 0, 10, r"record 5 has label 10, beyond the 10 classes"),
        (SMALL100, 1, 100, r"record 5 has label 100, beyond the 100 classes"),
        (SMALL100, 0, 20, r"record 5 of fine class \w+ has coarse label 20"),
    ],
)
def test_wrong_label_is_named(tmp_path, cifar, byte, value, message):
    records = write_binary(cifar, tmp_path)[-1]
    records[5, byte] = value
    path = tmp_path / cifar.binary.folder / cifar.binary.test
    path.write_bytes(records.tobytes())
    with pytest.raises(DataError, match=message) as caught:
        load_cifar(cifar, tmp_path)
    assert str(caught.value).startswith(str(path))
    assert f"anedl data fetch {cifar.name}" in str(caught.value)


def test_pickle_of_the_wrong_length_is_named(tmp_path):
    write_python(SMALL10, tmp_path)
    with pytest.raises(DataError, match=r"data_batch_1: pixels of shape \(12, 3072\) where"):
        load_cifar(CIFAR10, tmp_path)


def test_names_and_families_are_the_published_ones():
    assert len(CIFAR10_CLASSES) == 10
    assert CIFAR10_CLASSES[2:8] == ("bird", "cat", "deer", "dog", "frog", "horse")
    assert len(CIFAR100_CLASSES) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)
    families = dict(line.split(": ") for line in FAMILIES.strip().splitlines())
    assert tuple(families) == CIFAR100_COARSE_CLASSES
    for name, coarse in zip(CIFAR100_CLASSES, CIFAR100_COARSE, strict=True):
        assert name in families[CIFAR100_COARSE_CLASSES[coarse]].split()


def test_sizes_are_the_published_ones():
    for cifar, train_files in ((CIFAR10, 5), (CIFAR100, 1)):
        for layout in (cifar.binary, cifar.python):
            assert len(layout.train) == train_files
            assert set(layout.checksums) == set(layout.files)
        assert train_files * cifar.images_per_train_file == 50_000
        assert cifar.images_per_test_file == 10_000


@pytest.mark.cifar
@pytest.mark.parametrize(("name", "per_class"), [("cifar10", 5000), ("cifar100", 500)])
def test_real_files_load(name, per_class):
    try:
        dataset = load_dataset(name)
    except DataError as error:
        pytest.skip(f"no {name} in {data_root()}: {error}")
    classes = len(dataset.class_names)
    assert np.bincount(dataset.train.labels).tolist() == [per_class] * classes
    assert np.bincount(dataset.test.labels).tolist() == [per_class // 5] * classes
    # Known means of the training pixels, to the digits in which they are commonly quoted.
    means = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}[name]
    measured = dataset.train.images.pixels.reshape(-1, 3).mean(0) / 255
    np.testing.assert_allclose(measured, means, atol=1e-3)
