"""CIFAR-10 and CIFAR-100 from their official files, binary or Python layout, in the makers' order.

A binary record is its label bytes (CIFAR-10: the class; CIFAR-100: coarse, then fine) followed by
3072 bytes of pixels: 1024 red, 1024 green, 1024 blue, row by row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anedl.data.cifar_pickle import read_cifar_pickle
from anedl.data.dataset import ArrayImages, Dataset, IntArray, LabelledImages, UInt8Array
from anedl.errors import DataError

CIFAR10_CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())  # noqa: SIM905

CIFAR100_CLASSES = tuple(
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905
)

CIFAR100_COARSE_CLASSES = tuple(
    """aquatic_mammals fish flowers food_containers fruit_and_vegetables
    household_electrical_devices household_furniture insects large_carnivores
    large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
    medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1
    vehicles_2""".split()  # noqa: SIM905
)

# The coarse class of each fine class, in the order of CIFAR100_CLASSES.
# fmt: off
CIFAR100_COARSE: tuple[int, ...] = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11,
    6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5,
    5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17,
    10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13,
    16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)
# fmt: on

_BLOCK_RECORDS = 1000


@dataclass(frozen=True)
class Layout:
    """One published form: a folder, its files, and a checksum of each (`md5:…`, `sha256:…`)."""

    folder: str
    train: tuple[str, ...]
    test: str
    checksums: Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that loading reads."""
        return (*self.train, self.test)


@dataclass(frozen=True)
class Cifar:
    """What distinguishes the two sets; `coarse` is empty where there are no coarse labels."""

    name: str
    class_names: tuple[str, ...]
    coarse: tuple[int, ...]
    pickle_keys: tuple[str, ...]
    images_per_train_file: int
    images_per_test_file: int
    binary: Layout
    python: Layout

    @property
    def label_bytes(self) -> int:
        """How many labels open a binary record."""
        return len(self.pickle_keys)

    @property
    def remedy(self) -> str:
        """What to do about files that are not right."""
        return f"run `anedl data fetch {self.name}`"


CIFAR10 = Cifar(
    name="cifar10",
    class_names=CIFAR10_CLASSES,
    coarse=(),
    pickle_keys=("labels",),
    images_per_train_file=10_000,
    images_per_test_file=10_000,
    binary=Layout(
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test="test_batch.bin",
        checksums={
            "data_batch_1.bin": "sha256:"
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "sha256:"
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "sha256:"
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "sha256:"
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "sha256:"
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "sha256:"
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
    ),
    python=Layout(
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test="test_batch",
        checksums={
            "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
            "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
            "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "md5:40351d587109b95175f43aff81a1287e",
        },
    ),
)

CIFAR100 = Cifar(
    name="cifar100",
    class_names=CIFAR100_CLASSES,
    coarse=CIFAR100_COARSE,
    pickle_keys=("coarse_labels", "fine_labels"),
    images_per_train_file=50_000,
    images_per_test_file=10_000,
    binary=Layout(
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        checksums={
            "train.bin": "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
    ),
    python=Layout(
        folder="cifar-100-python",
        train=("train",),
        test="test",
        checksums={
            "train": "md5:16019d7e3df5f24257cddd939b257f8d",
            "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
)


def load_cifar10(root: Path) -> Dataset:
    """CIFAR-10 from `root/cifar-10-batches-bin` or `root/cifar-10-batches-py`: 50,000 + 10,000."""
    return load_cifar(CIFAR10, root)


def load_cifar100(root: Path) -> Dataset:
    """CIFAR-100, fine labels, from `root/cifar-100-binary` or `root/cifar-100-python`."""
    return load_cifar(CIFAR100, root)


def layout_folder(layout: Layout, root: Path) -> Path:
    """The folder of `layout`: inside `root`, or `root` itself when that already names it."""
    return root if root.name == layout.folder else root / layout.folder


def load_cifar(cifar: Cifar, root: Path) -> Dataset:
    """Read the first complete layout found below `root`, binary before Python."""
    layout = _find_layout(cifar, root)
    folder = layout_folder(layout, root)
    train = [(folder / name, cifar.images_per_train_file) for name in layout.train]
    test = [(folder / layout.test, cifar.images_per_test_file)]
    return Dataset(
        name=cifar.name,
        class_names=cifar.class_names,
        train=_read_part(cifar, layout, train),
        test=_read_part(cifar, layout, test),
    )


def _find_layout(cifar: Cifar, root: Path) -> Layout:
    layouts = (cifar.binary, cifar.python)
    absent = {}
    for layout in layouts:
        folder = layout_folder(layout, root)
        missing = [folder / name for name in layout.files if not (folder / name).is_file()]
        if not missing:
            return layout
        if folder.is_dir():
            absent[layout.folder] = missing[0]
    if absent:
        raise DataError(f"{next(iter(absent.values()))}: the file is missing; {cifar.remedy}")
    raise DataError(
        f"{root}: no {cifar.name} here (looked for {cifar.binary.folder}/ and "
        f"{cifar.python.folder}/); {cifar.remedy}, or name the folder that holds it"
    )


def _read_part(cifar: Cifar, layout: Layout, files: list[tuple[Path, int]]) -> LabelledImages:
    total = sum(count for _, count in files)
    pixels = np.empty((total, 32 * 32, 3), np.uint8)
    labels = np.empty(total, np.int64)
    read = _read_binary if layout is cifar.binary else _read_python
    start = 0
    for path, count in files:
        columns = []
        filled = start
        for planar, block_labels in read(cifar, path, count):
            block = pixels[filled : filled + len(planar)]
            for channel in range(3):
                # Plane by plane is several times faster than one transposed copy.
                block[:, :, channel] = planar[:, channel]
            columns.append(block_labels)
            filled += len(planar)
        labels[start:filled] = _checked_labels(cifar, path, np.concatenate(columns))
        start = filled
    return LabelledImages(ArrayImages(pixels.reshape(total, 32, 32, 3)), labels)


_Block = tuple[UInt8Array, IntArray]
"""Pixels (n, 3, 1024) and labels (n, label_bytes) of some records of a file."""


def _read_binary(cifar: Cifar, path: Path, count: int) -> Iterator[_Block]:
    record = cifar.label_bytes + 3072
    size = path.stat().st_size
    if size != count * record:
        raise DataError(
            f"{path}: {size:,} bytes where {count:,} records of {record} make {count * record:,}; "
            f"the file is damaged or not {cifar.name}; {cifar.remedy}"
        )
    try:
        with path.open("rb") as file:
            # Block by block stays in the processor's cache and needs no second copy of the file.
            for start in range(0, count, _BLOCK_RECORDS):
                length = min(_BLOCK_RECORDS, count - start)
                records = np.fromfile(file, np.uint8, length * record).reshape(length, record)
                planar = records[:, cifar.label_bytes :].reshape(length, 3, 1024)
                yield planar, records[:, : cifar.label_bytes].astype(np.int64)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {cifar.remedy}") from error


def _read_python(cifar: Cifar, path: Path, count: int) -> Iterator[_Block]:
    flat, columns = read_cifar_pickle(path, cifar.pickle_keys, cifar.remedy)
    if flat.shape != (count, 3072):
        raise DataError(
            f"{path}: pixels of shape {flat.shape} where {(count, 3072)} is due; {cifar.remedy}"
        )
    yield flat.reshape(count, 3, 1024), columns


def _checked_labels(cifar: Cifar, path: Path, columns: IntArray) -> IntArray:
    """The class label of every record, once each is known to exist and to agree with its coarse."""
    labels = columns[:, -1]
    classes = len(cifar.class_names)
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"{path}: record {wrong[0]} has label {labels[wrong[0]]}, beyond the {classes} "
            f"classes of {cifar.name}; {cifar.remedy}"
        )
    if cifar.coarse:
        due = np.array(cifar.coarse)[labels]
        wrong = np.flatnonzero(columns[:, 0] != due)
        if len(wrong):
            first = wrong[0]
            raise DataError(
                f"{path}: record {first} of fine class {cifar.class_names[labels[first]]} has "
                f"coarse label {columns[first, 0]} where {due[first]} is due; {cifar.remedy}"
            )
    return labels
