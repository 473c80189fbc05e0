"""What a method may know of a setting before it sees an image."""

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
