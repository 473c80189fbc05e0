"""Fetching a data set from its makers: resumed when broken off, checked, unpacked with care."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from anedl.data.archive import DEFAULT_MAX_BYTES, unpack
from anedl.data.cifar import CIFAR10, CIFAR100, Layout
from anedl.data.download import download
from anedl.data.progress import Progress, TransferBar
from anedl.data.sources import SOURCES, data_root
from anedl.data.verify import check_files, file_digest
from anedl.errors import DataError, unknown_name


@dataclass(frozen=True)
class Archive:
    """One .tar.gz to fetch: its addresses in order of preference, its MD5, and the folder in it.

    `checksums` (file → `algorithm:hex`) tells whether the unpacked folder is already there.
    """

    urls: tuple[str, ...]
    md5: str
    folder: str
    checksums: Mapping[str, str] = field(default_factory=dict)
    max_bytes: int = DEFAULT_MAX_BYTES

    @property
    def file_name(self) -> str:
        """The name of the archive itself."""
        return self.urls[0].rpartition("/")[2]


def _cifar_archive(file_name: str, md5: str, layout: Layout) -> Archive:
    # The makers' page moved from the first address to the second, and the first sends on to it.
    urls = (
        f"https://www.cs.toronto.edu/~kriz/{file_name}",
        f"https://cave.cs.toronto.edu/kriz/{file_name}",
    )
    return Archive(urls, md5, layout.folder, layout.checksums)


ARCHIVES: dict[tuple[str, str], Archive] = {
    ("cifar10", "binary"): _cifar_archive(
        "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", CIFAR10.binary
    ),
    ("cifar10", "python"): _cifar_archive(
        "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", CIFAR10.python
    ),
    ("cifar100", "binary"): _cifar_archive(
        "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", CIFAR100.binary
    ),
    ("cifar100", "python"): _cifar_archive(
        "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", CIFAR100.python
    ),
}

# Why some sets cannot be fetched, and what to do instead; `{root}` is where data live.
BY_HAND: dict[str, str] = {
    "digits": "digits comes with scikit-learn: there is nothing to fetch, use it as it is",
    "folder": "a folder of your own images is not fetched: name it where you train",
    "imagenet30": (
        "imagenet30 is a part of ImageNet, whose licence forbids passing it on, so it has to be "
        "put in place by hand:\n"
        "  1. ask for access to ImageNet (ILSVRC 2012) at https://image-net.org and download it\n"
        "  2. take the 30 classes (acorn, airliner, … volcano) as Hendrycks et al. chose them in "
        "2019,\n"
        "     with 1,300 train and 100 test images each\n"
        "  3. lay them out as {root}/imagenet30/train/<class>/*.JPEG and "
        "{root}/imagenet30/test/<class>/*.JPEG,\n"
        "     or keep any layout and write {root}/imagenet30/train.txt and test.txt, a line an "
        "image:\n"
        "     its path relative to {root}/imagenet30, a space, and its class number 0…29 in "
        "alphabetical order\n"
        "  4. check with `anedl data verify imagenet30`"
    ),
    "miniimagenet": (
        "miniimagenet is a part of ImageNet, whose licence forbids passing it on, so it has to be "
        "put in place by hand:\n"
        "  1. ask for access to ImageNet (ILSVRC 2012) at https://image-net.org and download it\n"
        "  2. take the 100 classes, 600 images each, of the published lists (train.csv, val.csv, "
        "test.csv)\n"
        "  3. lay them out as {root}/miniimagenet/<wnid>/*.jpg,\n"
        "     or {root}/miniimagenet/train/<wnid>/*.jpg with val/ and test/ beside train/,\n"
        "     or {root}/miniimagenet/images/*.jpg with train.csv, val.csv and test.csv "
        "(filename,label)\n"
        "  4. check with `anedl data verify miniimagenet`"
    ),
}


def fetch(
    name: str,
    root: Path | None = None,
    layout: str = "binary",
    *,
    progress: Progress | None = None,
    archive: Archive | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Bring the data set called `name` below `root` (else `data_root()`); return its folder.

    Nothing is downloaded when the folder is there and its checksums hold, nor when the archive
    itself lies in `root`, put there by hand. `layout` is `binary` or `python`. `progress` is told
    the bytes so far and in all; by default a bar is written to stderr. `archive` overrides where
    to fetch from, `sleep` how to wait between attempts.
    """
    where = data_root(root)
    chosen = archive if archive is not None else _archive(name, layout, where)
    if chosen.checksums and not check_files(where / chosen.folder, chosen.checksums, ""):
        return where / chosen.folder
    try:
        return _bring(chosen, where, progress, sleep)
    except OSError as error:
        raise DataError(
            f"{error.filename or where}: cannot be written ({error.strerror}); free some space or "
            "name another folder"
        ) from error


def _bring(
    archive: Archive, root: Path, progress: Progress | None, sleep: Callable[[float], None]
) -> Path:
    by_hand = root / archive.file_name
    if by_hand.is_file() and file_digest(by_hand, "md5") == archive.md5:
        return unpack(by_hand, archive.folder, root, archive.max_bytes)
    root.mkdir(parents=True, exist_ok=True)
    part = root / f"{archive.file_name}.part"
    with closing(TransferBar(archive.file_name)) as bar:
        download(archive.urls, archive.md5, part, progress or bar, sleep)
    folder = unpack(part, archive.folder, root, archive.max_bytes)
    part.unlink()
    return folder


def _archive(name: str, layout: str, where: Path) -> Archive:
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    if name in BY_HAND:
        raise DataError(BY_HAND[name].format(root=where))
    if (name, layout) not in ARCHIVES:
        raise unknown_name("layout", layout, [known for owner, known in ARCHIVES if owner == name])
    return ARCHIVES[name, layout]
