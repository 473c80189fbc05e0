"""The development split: choose a recipe without touching test images or pool labels.

Some known classes play unknown. Everything comes from labels that the setting really grants, those
of its labelled and validation images; the pool is the setting's own, unchanged, and already holds
unlabelled images of the classes that play unknown.
"""

import numpy as np

from anedl.data.dataset import IntArray
from anedl.data.protocol import Split, hash_order
from anedl.data.settings import Setting
from anedl.errors import ConfigError


def development_split(setting: Setting, split: Split, train_labels: IntArray) -> Split:
    """Turn a setting's split into its development split; the result's test indexes the train part.

    Labelled: the labelled images of the classes that stay known. Of their validation images one in
    five (at least one a class) validates, the others are the test inliers. Test outliers: all
    labelled and validation images of the classes that play unknown. Test images that the protocol
    cut from the train part appear nowhere.

    Args:
        setting: the setting that `split` was drawn for.
        split: its split at some fold, which decides the classes that play unknown.
        train_labels: (N,) labels; read at the labelled and validation images only.
    """
    if split.setting != setting.name or split.development:
        kind = "development split" if split.development else "split"
        raise ConfigError(
            f"a development split of {setting.name} needs that setting's own split, "
            f"got a {kind} of {split.setting}"
        )
    if setting.validation_per_class < 2:
        raise ConfigError(
            f"setting {setting.name}: a development split needs 2 validation images a class or more"
        )
    setting.check_development()
    # Keyed by data set and K, not by the number of labels, so that all label counts of a fold
    # are developed against the same unknown classes.
    key = f"{setting.dataset}-{setting.num_known}/development/fold-{split.fold}"
    # Whole families play unknown, as they are unknown in the setting itself: a class with known
    # siblings would be a harder outlier than any the setting has.
    playing_unknown: set[int] = set()
    families = {setting.group_of(label) for label in split.known_classes}
    for family in hash_order(families, f"{key}/class"):
        if len(playing_unknown) >= setting.development_unknowns:
            break
        playing_unknown |= {k for k in split.known_classes if setting.group_of(k) == family}
    staying = [label for label in split.known_classes if label not in playing_unknown]

    labelled_labels = train_labels[split.labelled]
    validation_labels = train_labels[split.validation]
    labelled_stays = np.isin(labelled_labels, staying)
    outliers = np.concatenate(
        [split.labelled[~labelled_stays], split.validation[~np.isin(validation_labels, staying)]]
    )
    validating = max(1, setting.validation_per_class // 5)
    validation: list[int] = []
    inliers: list[int] = []
    for label in staying:
        members = split.validation[validation_labels == label]
        drawn = hash_order(members.tolist(), f"{key}/image")
        validation += drawn[:validating]
        inliers += drawn[validating:]

    names = dict(zip(split.known_classes, split.known_names, strict=True))
    return Split(
        setting=split.setting,
        fold=split.fold,
        development=True,
        known_classes=tuple(staying),
        known_names=tuple(names[label] for label in staying),
        labelled=split.labelled[labelled_stays],
        validation=np.array(sorted(validation), dtype=np.int64),
        pool=split.pool,
        test=np.sort(np.concatenate([np.array(inliers, dtype=np.int64), outliers])),
        test_part="train",
    )
