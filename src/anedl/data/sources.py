"""Every data set by name, and where data live."""

import os
from collections.abc import Callable
from pathlib import Path

from anedl.data.cifar import CIFAR10, CIFAR100, layout_folder, load_cifar10, load_cifar100
from anedl.data.dataset import Dataset
from anedl.data.digits import load_digits
from anedl.data.folder import load_folder
from anedl.data.imagenet30 import imagenet30_folder, load_imagenet30
from anedl.data.miniimagenet import load_miniimagenet, miniimagenet_folder
from anedl.errors import ConfigError, unknown_name

SOURCES: dict[str, Callable[[Path], Dataset]] = {
    "cifar10": load_cifar10,
    "cifar100": load_cifar100,
    "digits": load_digits,
    "folder": load_folder,
    "imagenet30": load_imagenet30,
    "miniimagenet": load_miniimagenet,
}


def data_root(root: Path | None = None) -> Path:
    """The folder that holds the data sets.

    In this order: `root` where one is given, the environment variable `ANEDL_DATA` where it is
    set, `./data` where that folder exists, and `~/.cache/anedl`.
    """
    if root is not None:
        return root.expanduser()
    if named := os.environ.get("ANEDL_DATA"):
        return Path(named).expanduser()
    if (here := Path("data")).is_dir():
        return here
    return Path.home() / ".cache" / "anedl"


def is_present(name: str, root: Path | None = None) -> bool:
    """Whether there is anything of a data set below `root`; it may still be incomplete."""
    where = data_root(root)
    folders = {
        "cifar10": [layout_folder(layout, where) for layout in (CIFAR10.binary, CIFAR10.python)],
        "cifar100": [layout_folder(layout, where) for layout in (CIFAR100.binary, CIFAR100.python)],
        "imagenet30": [imagenet30_folder(where)],
        "miniimagenet": [miniimagenet_folder(where)],
    }
    return name == "digits" or any(folder.is_dir() for folder in folders.get(name, []))


def load_dataset(name: str, root: Path | None = None) -> Dataset:
    """Load the data set called `name` from `root`, or from where `data_root` looks.

    For `folder`, `root` is the folder of images itself and must be given.
    """
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    if name == "folder" and root is None:
        raise ConfigError("the data set 'folder' needs the folder of your images to be named")
    return SOURCES[name](data_root(root))
