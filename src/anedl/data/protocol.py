"""The protocol: who is labelled, who is in the pool, who validates and who tests.

`draw_split(setting, fold, …)` gives a `Split`, which holds indices and no label: the true label of
a pool image has no way out of here. Its hash lets two runs prove that they used the same split.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal

import numpy as np

from anedl.data.dataset import IntArray
from anedl.data.settings import Setting
from anedl.errors import ConfigError, DataError

UNKNOWN = -1
"""The target of an image whose class is not among the known ones."""

SPLIT_FORMAT = 1
INDEX_FIELDS = ("labelled", "validation", "pool", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Indices of the labelled, validation, pool and test images, ascending and without repeats.

    `labelled`, `validation` and `pool` index the train part of the data set; `test` indexes the
    part that `test_part` names. `known_classes` are labels of the data set, ascending; the known
    class at position k is class k of the model and has the name `known_names[k]`.
    """

    setting: str
    fold: int
    development: bool
    known_classes: tuple[int, ...]
    known_names: tuple[str, ...]
    labelled: IntArray
    validation: IntArray
    pool: IntArray
    test: IntArray
    test_part: Literal["train", "test"]

    def __post_init__(self) -> None:
        if list(self.known_classes) != sorted(set(self.known_classes)) or not self.known_classes:
            raise DataError("the known classes of a split must be ascending and at least one")
        if len(self.known_names) != len(self.known_classes):
            raise DataError(
                f"a split has {len(self.known_classes)} known classes "
                f"but {len(self.known_names)} names for them"
            )
        if self.test_part not in ("train", "test"):
            raise DataError(
                f"a split's test images are of part train or test, not {self.test_part}"
            )
        for name in INDEX_FIELDS:
            indices = np.array(getattr(self, name), dtype=np.int64)  # a copy, so it can be sealed
            if indices.ndim != 1 or (indices < 0).any() or (np.diff(indices) <= 0).any():
                raise DataError(f"the {name} indices of a split must be ascending and 0 or more")
            indices.setflags(write=False)
            object.__setattr__(self, name, indices)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Split) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def num_known(self) -> int:
        """K, the number of known classes."""
        return len(self.known_classes)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything the split says, in hexadecimal.

        The bytes are one line of JSON (sorted keys, no spaces, ASCII) with all that is not an
        index, then for each of labelled, validation, pool and test a line `name count` and the
        indices as little-endian int64. A newline ends each line, so no two splits share bytes.
        """
        head = {
            "format": SPLIT_FORMAT,
            "setting": self.setting,
            "fold": self.fold,
            "development": self.development,
            "known_classes": self.known_classes,
            "known_names": self.known_names,
            "test_part": self.test_part,
        }
        digest = sha256(json.dumps(head, sort_keys=True, separators=(",", ":")).encode("ascii"))
        digest.update(b"\n")
        for name in INDEX_FIELDS:
            indices: IntArray = getattr(self, name)
            digest.update(f"{name} {len(indices)}\n".encode("ascii"))
            digest.update(indices.astype("<i8").tobytes())
        return digest.hexdigest()

    def targets(self, labels: IntArray) -> IntArray:
        """Labels of the data set, (N,), as known classes 0…K−1, or `UNKNOWN` (−1)."""
        known = np.array(self.known_classes, dtype=np.int64)
        position = np.searchsorted(known, labels).clip(max=len(known) - 1)
        return np.where(known[position] == labels, position, UNKNOWN).astype(np.int64)

    def labelled_targets(self, train_labels: IntArray) -> IntArray:
        """The known class of each labelled image."""
        return self.targets(train_labels[self.labelled])

    def validation_targets(self, train_labels: IntArray) -> IntArray:
        """The known class of each validation image."""
        return self.targets(train_labels[self.validation])

    def test_targets(self, train_labels: IntArray, test_labels: IntArray) -> IntArray:
        """The known class of each test image, or `UNKNOWN`."""
        labels = train_labels if self.test_part == "train" else test_labels
        return self.targets(labels[self.test])

    def check(self, train_labels: IntArray, test_labels: IntArray) -> None:
        """Raise `DataError` unless the split fits data with these labels.

        No train image may have two roles, all labelled and validation images must be of a known
        class and each known class must be labelled, and nothing may be left out: an official test
        part is used whole, and every train image has a role. Development splits may leave out
        train images (the test images that a protocol cut); they may not use official test images.
        """
        roles = {"labelled": self.labelled, "validation": self.validation, "pool": self.pool}
        if self.test_part == "train":
            roles["test"] = self.test
        elif self.development:
            raise DataError("a development split must not use the official test part")
        elif not np.array_equal(self.test, np.arange(len(test_labels))):
            raise DataError(
                f"the split tests on {len(self.test)} images, which is not exactly the test part "
                f"of {len(test_labels)}"
            )
        used = np.concatenate(list(roles.values()))
        if used.max(initial=-1) >= len(train_labels):
            raise DataError(
                f"the split names train image {used.max()}, but there are {len(train_labels)}: "
                f"it was drawn from other data"
            )
        times = np.bincount(used, minlength=len(train_labels))
        if (times > 1).any():
            raise DataError(f"train image {times.argmax()} has more than one role in the split")
        if not self.development and (times == 0).any():
            raise DataError(f"train image {times.argmin()} has no role in the split")
        for name, targets in (
            ("labelled", self.labelled_targets(train_labels)),
            ("validation", self.validation_targets(train_labels)),
        ):
            if (targets == UNKNOWN).any():
                raise DataError(f"a {name} image of the split is not of a known class")
        missing = set(range(self.num_known)) - set(self.labelled_targets(train_labels).tolist())
        if missing:
            raise DataError(f"known class {self.known_names[min(missing)]!r} has no labelled image")


def draw_split(
    setting: Setting,
    fold: int,
    train_labels: IntArray,
    test_labels: IntArray,
    class_names: Sequence[str],
) -> Split:
    """Draw the split of a setting's fold.

    Of each known class the first `validation_per_class` images in the fold's order validate, the
    next `labelled_per_class` are labelled. Validation comes first so that settings which differ
    only in the number of labels share their validation images and nest their labelled ones.

    Args:
        setting: what to draw.
        fold: 0 or more; only 0 where the setting has one fold.
        train_labels: (N,) labels of the data set's train part.
        test_labels: (T,) labels of its official test part; empty where there is none.
        class_names: the name of each label.

    Raises:
        DataError: the labels are not those of the setting's data set.
        ConfigError: the setting has no such fold.
    """
    if fold < 0 or (setting.folds == "one" and fold != 0):
        allowed = "it has fold 0 only; vary the seed" if setting.folds == "one" else "0 or more"
        raise ConfigError(f"setting {setting.name} has no fold {fold}: {allowed}")
    _check_counts(setting, "train", train_labels, setting.train_counts, class_names)
    _check_counts(setting, "test", test_labels, setting.test_counts, class_names)

    free = np.ones(len(train_labels), dtype=bool)
    if setting.test_cut_per_class:
        # No fold in this key: every fold tests on the same images, as with an official test part.
        for label in range(setting.num_classes):
            members = np.flatnonzero(train_labels == label)
            cut = hash_order(members.tolist(), f"{setting.dataset}/test")
            free[cut[: setting.test_cut_per_class]] = False
        test = np.flatnonzero(~free)
    else:
        test = np.arange(len(test_labels))

    validation: list[int] = []
    labelled: list[int] = []
    for label in setting.known_classes:
        members = np.flatnonzero((train_labels == label) & free)
        drawn = hash_order(members.tolist(), f"{setting.dataset}/fold-{fold}")
        cut_at = setting.validation_per_class
        validation += drawn[:cut_at]
        labelled += drawn[cut_at : cut_at + setting.labelled_per_class]
    free[validation] = False
    free[labelled] = False
    return Split(
        setting=setting.name,
        fold=fold,
        development=False,
        known_classes=setting.known_classes,
        known_names=tuple(class_names[label] for label in setting.known_classes),
        labelled=np.array(sorted(labelled), dtype=np.int64),
        validation=np.array(sorted(validation), dtype=np.int64),
        pool=np.flatnonzero(free),
        test=test,
        test_part="train" if setting.test_cut_per_class else "test",
    )


def hash_order(numbers: Iterable[int], key: str) -> list[int]:
    """The numbers in the order of the SHA-256 of the text `key/number`: a draw that never changes.

    A generator's stream may change with the version of its library, and a published split with it.
    A hash of a text is the same on every machine, in every language and for ever; and as each
    number's place depends on nothing but itself, draws of different sizes nest.
    """
    return sorted(numbers, key=lambda number: sha256(f"{key}/{number}".encode("ascii")).digest())


def _check_counts(
    setting: Setting,
    part: str,
    labels: IntArray,
    expected: tuple[int, ...],
    class_names: Sequence[str],
) -> None:
    """Raise `DataError` unless there are exactly the expected number of images of each class."""
    if len(class_names) != setting.num_classes:
        raise DataError(
            f"setting {setting.name} is for {setting.num_classes} classes, "
            f"the data has {len(class_names)} class names"
        )
    if len(labels) != sum(expected):
        raise DataError(
            f"setting {setting.name} is for {sum(expected):,} {part} images, the data has "
            f"{len(labels):,}: fetch {setting.dataset} again, whole"
        )
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= setting.num_classes:
        raise DataError(
            f"setting {setting.name}: {part} labels must lie in 0…{setting.num_classes - 1}, "
            f"found {labels.min()}…{labels.max()}"
        )
    counts = np.bincount(labels, minlength=setting.num_classes)
    wrong = np.flatnonzero(counts != np.array(expected))
    if len(wrong):
        label = int(wrong[0])
        raise DataError(
            f"setting {setting.name}: class {class_names[label]!r} has {counts[label]:,} {part} "
            f"images, it should have {expected[label]:,}: fetch {setting.dataset} again, whole"
        )
