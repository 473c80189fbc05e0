"""What a method may know of a setting before it sees an image."""

from dataclasses import replace

from anedl.data.protocol import Split
from anedl.data.settings import Setting
from anedl.methods.base import Task

# λ_CON: the released code's for CIFAR-100; half of it for the sets with fewer classes (our choice).
CONSISTENCY_WEIGHTS = {"cifar10": 0.015, "imagenet30": 0.015}
DEFAULT_CONSISTENCY_WEIGHT = 0.03


def task_of(setting: Setting, development: bool) -> Task:
    """The task of a setting; on its development split M and O shrink with the known classes."""
    classes = setting.num_known - (setting.development_unknowns if development else 0)
    share = classes / setting.num_known
    return Task(
        classes=classes,
        top_m=max(1, round(setting.top_m * share)),
        inlier_share=setting.oracle_share * share,
        consistency_weight=CONSISTENCY_WEIGHTS.get(setting.dataset, DEFAULT_CONSISTENCY_WEIGHT),
        dataset=setting.dataset,
        image_size=setting.image_size,
    )


def task_of_split(setting: Setting, split: Split) -> Task:
    """The task of one split, which has a number of images too."""
    task = task_of(setting, split.development)
    return replace(task, pool_size=len(split.pool), labelled_size=len(split.labelled))
