"""Outliers from elsewhere: images of no class of a setting's data set, which no pool ever held.

A set has a name:

- `uniform-noise`: every byte equally likely; `gaussian-noise`: bytes around mid-grey.
- `cifar10`, `cifar100`: the official test part, for a setting of the other one without the classes
  that both show.
- `folder:PATH`: every image file below PATH, whatever folders they lie in.

Images come out as the setting's own do at test time: its size, its channels, its way to get there.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np
from PIL import Image

from anedl.data.augment.host import HostAugment
from anedl.data.batches import ImageBatches
from anedl.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES
from anedl.data.dataset import FileImages, Images, IntArray, UInt8Array
from anedl.data.folder import IMAGE_SUFFIXES, list_images
from anedl.data.settings import Setting
from anedl.data.sources import is_present, load_dataset
from anedl.errors import ConfigError, DataError, unknown_name

NOISE = ("uniform-noise", "gaussian-noise")
CIFARS = {"cifar10": CIFAR10_CLASSES, "cifar100": CIFAR100_CLASSES}
FOLDER = "folder:"

NOISE_IMAGES = 2000  # the standard error of a share is then 1.1 points at most
NOISE_SEED = 2024
NOISE_MEAN, NOISE_STD = 127.5, 63.75  # two deviations reach 0 and 255; what lies beyond is clipped

# The CIFAR-100 classes that show the same kind of thing as classes of CIFAR-10. The same kind is:
# the same zoological family, or for machines any motor vehicle on land, or any flying machine. In
# doubt a class is dropped: an outlier that is one only by name would spoil the figures.
#
# Looked at and kept, as hard outliers but true ones: bear, otter, raccoon and skunk (dog, cat:
# other families); camel, cattle and kangaroo (horse, deer: other families); crocodile, lizard,
# snake and turtle (frog: reptiles); bicycle (no motor); cloud, sea and road (places in which
# airplanes, ships and cars are seen, but the label names the place).
SAME_KIND: dict[str, tuple[str, ...]] = {
    # Cats in the zoologist's sense.
    "leopard": ("cat",),
    "lion": ("cat",),
    "tiger": ("cat",),
    # The family of dogs.
    "fox": ("dog",),
    "wolf": ("dog",),
    # Motor vehicles on land. The first two are cars and trucks to most people; a streetcar is a bus
    # on rails, and a train a row of them; a tank or a tractor is as large as a truck and built much
    # alike; many lawn mowers are small tractors; a motorcycle shares road and motor with a car.
    "bus": ("automobile", "truck"),
    "pickup_truck": ("automobile", "truck"),
    "streetcar": ("automobile", "truck"),
    "train": ("automobile", "truck"),
    "tank": ("automobile", "truck"),
    "tractor": ("automobile", "truck"),
    "lawn_mower": ("automobile", "truck"),
    "motorcycle": ("automobile", "truck"),
    # A flying machine; shuttles have wings.
    "rocket": ("airplane",),
}

# These hold airliners, dogs, birds and cars; which of their classes CIFAR shares is not listed.
UNCOMPARED = ("imagenet30", "miniimagenet")


def load_outliers(
    name: str, setting: Setting, root: Path | None = None, threads: int = 0
) -> ImageBatches:
    """The set called `name` as a model of `setting` sees images.

    Args:
        name: as in the description of this module.
        setting: says size, channels and preprocessing, and which classes are no outliers.
        root: folder of the data sets; None: where `anedl.data.sources.data_root` looks.
        threads: how many read images at a time.

    Raises:
        ConfigError: there is no such set, or it is none for this setting.
        DataError: its files are not there or damaged.
    """
    augment = HostAugment(setting.augmentation, setting.image_size)
    channels = len(setting.mean)
    images: Images
    if name in NOISE:
        images = NoiseImages(name, NOISE_IMAGES, setting.image_size, channels)
        indices = np.arange(len(images))
        # Made at its final size: resizing, as of photographs, would smooth it.
        augment = HostAugment("small", setting.image_size)
    elif name in CIFARS:
        kept = [CIFARS[name].index(label) for label in outlier_classes(name, setting.dataset)]
        test = load_dataset(name, root).test
        images, indices = test.images, np.flatnonzero(np.isin(test.labels, kept))
    elif name.startswith(FOLDER):
        images = FileImages(_files_below(name.removeprefix(FOLDER)))
        indices = np.arange(len(images))
    else:
        raise unknown_name("set of outliers", name, [*NOISE, *CIFARS, f"{FOLDER}PATH"])
    if channels == 1 and name not in NOISE:
        images = GreyImages(images)
    numbers: IntArray = indices.astype(np.int64)
    return ImageBatches(images, numbers, augment, threads)


def default_outliers(
    setting: Setting, root: Path | None = None, threads: int = 0
) -> dict[str, ImageBatches]:
    """Both kinds of noise, and for a setting of one CIFAR the other where its files are at hand."""
    sets = {name: load_outliers(name, setting, threads=threads) for name in NOISE}
    other = {"cifar10": "cifar100", "cifar100": "cifar10"}.get(setting.dataset)
    if other is not None and is_present(other, root):
        # Nobody asked for it by name, so half a download is no error here.
        with suppress(DataError):
            sets[other] = load_outliers(other, setting, root, threads)
    return sets


def named_outliers(
    names: Sequence[str], setting: Setting, root: Path | None = None, threads: int = 0
) -> dict[str, ImageBatches]:
    """The sets called so, each once; `["none"]` gives no set at all.

    Raises:
        AnedlError: any of them cannot be had.
    """
    if "none" in names:
        if len(names) > 1:
            raise ConfigError("outliers 'none' stands alone: leave it out, or the other names")
        return {}
    return {name: load_outliers(name, setting, root, threads) for name in names}


def outlier_classes(name: str, dataset: str) -> tuple[str, ...]:
    """The classes of a CIFAR set that are outliers to every class of `dataset`, known or not.

    Raises:
        ConfigError: `dataset` is that set itself, or has classes that were never compared with it.
    """
    if name == dataset:
        raise ConfigError(
            f"{name} holds no outliers from elsewhere for a setting of {dataset}: its unknown "
            f"classes are in the pool, and the test's own figures are about them"
        )
    if dataset in UNCOMPARED:
        raise ConfigError(
            f"{name} shares kinds of things with {dataset}, and which is not listed; put images "
            f"that show none of its classes into a folder and name that ({FOLDER}PATH)"
        )
    shared: set[str] = set()
    if (name, dataset) == ("cifar100", "cifar10"):
        shared = set(SAME_KIND)
    elif (name, dataset) == ("cifar10", "cifar100"):
        shared = {label for labels in SAME_KIND.values() for label in labels}
    return tuple(label for label in CIFARS[name] if label not in shared)


@dataclass(frozen=True)
class NoiseImages:
    """`count` images of noise; image i is the same on every machine and in every order."""

    kind: str
    count: int
    side: int
    channels: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> UInt8Array:
        shape = (self.side, self.side, self.channels)
        size = self.side * self.side * self.channels
        # The raw bits of the generator are fixed for good; its distributions may change one day.
        bits = np.random.Philox(
            key=np.array([NOISE_SEED, NOISE.index(self.kind)], dtype=np.uint64),
            counter=np.array([0, 0, index, 0], dtype=np.uint64),
        )
        if self.kind == "uniform-noise":
            words = bits.random_raw(-(-size // 8)).astype("<u8")
            uniform: UInt8Array = words.view(np.uint8)[:size].reshape(shape)
            return uniform
        places = bits.random_raw(-(-size // 4)).astype("<u8").view("<u2")[:size]
        gaussian: UInt8Array = _gaussian_bytes()[places].reshape(shape)
        return gaussian


@dataclass(frozen=True)
class GreyImages:
    """Other images as (height, width, 1): 0.299 red + 0.587 green + 0.114 blue."""

    images: Images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> UInt8Array:
        image = self.images[index]
        if image.shape[2] == 1:
            return image
        grey: UInt8Array = np.array(Image.fromarray(image).convert("L"))
        return grey[:, :, None]


@cache
def _gaussian_bytes() -> UInt8Array:
    """The byte at each of 2¹⁶ evenly spaced quantiles of the clipped normal distribution."""
    normal = NormalDist(NOISE_MEAN, NOISE_STD)
    steps = 2**16
    quantiles = np.array([normal.inv_cdf((place + 0.5) / steps) for place in range(steps)])
    made: UInt8Array = np.rint(quantiles.clip(0, 255)).astype(np.uint8)
    return made


def _files_below(text: str) -> list[Path]:
    if not text:
        raise ConfigError(f"{FOLDER} names no folder; write {FOLDER}PATH")
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of images")
    paths = list_images(folder)
    if not paths:
        raise DataError(f"{folder}: there are no images here ({', '.join(IMAGE_SUFFIXES)})")
    return paths
