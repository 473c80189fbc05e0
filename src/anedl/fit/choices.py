"""What `anedl fit` decides by itself, from what it found; each choice is printed with its reason.

Every one can be overridden. None looks at more than counts, sizes and the device.
"""

from dataclasses import dataclass
from math import ceil, log2

import torch

from anedl.conformal import percent
from anedl.engine.own import classes_to_sum
from anedl.engine.pool_share import SELECTED_OF_INLIERS, share_to_select
from anedl.errors import ConfigError
from anedl.intake.facts import ImageSizes
from anedl.intake.fitted import AS_ASKED
from anedl.networks import TrainedOn

AS_BEGUN = "as the run began"  # the reason of a choice that is not made again

SIDES = (8, 12, 16, 24, 32, 48, 64, 84, 96, 128, 160, 192, 224)
LARGEST_SIDE = {"cpu": 64, "cuda": 224}  # a CPU would take days over more
# Of a trunk that was trained before: a CPU can only look through it, which is quicker.
LARGEST_TRAINED_SIDE = {"cpu": 160, "cuda": 384}
CROPPED_FROM = 128  # from this side on views are cut from larger frames, as photographs are
VALIDATION_SHARE = 0.15
CALIBRATION_SHARES = (0.25, 0.4)  # the least, and the most where there are few labels
FEWEST_A_CLASS = 5  # different images: three to learn from, one to validate, one to calibrate
SUPERVISED_TIME = 0.2  # of the minutes, for the model that learns from the labels alone
FOLDS_TIME = 0.45  # for the models of all folds together, where there are folds
MOST_FOLDS = 5


@dataclass(frozen=True)
class Choice:
    """A value and why it was taken."""

    name: str
    value: object
    reason: str

    def describe(self) -> str:
        """One line for the terminal."""
        return f"  {self.name:<14} {self.value!s:<14} {self.reason}"


def choose_frozen(
    trained: TrainedOn | None, device: torch.device, wanted: bool | None = None
) -> Choice:
    """Whether the trunk stays as it was trained."""
    if wanted is not None:
        return Choice("frozen", wanted, AS_ASKED)
    if trained is None:
        return Choice("frozen", False, "it begins with random weights")
    if device.type == "cpu":
        return Choice("frozen", True, f"trained on {trained.images}; no GPU to train it further")
    return Choice("frozen", False, f"trained on {trained.images}, and goes on from there")


LOOKING_TIME = 0.4  # of the minutes, for a frozen trunk to look at views of all images
LEAST_TRAINING = 0.2  # of the minutes, however long that took
MOST_FEATURE_VIEWS = 8


def choose_feature_views(
    images: int, seconds: float, minutes: float, wanted: int | None = None
) -> Choice:
    """Weak views, and as many strong ones, that a frozen trunk looks at besides the plain one.

    `seconds` is what it takes over one view of an image.
    """
    if wanted is not None:
        return Choice("feature views", wanted, AS_ASKED)
    all_once = images * seconds
    affordable = LOOKING_TIME * 60 * minutes / max(all_once, 1e-9)
    views = int(min(MOST_FEATURE_VIEWS, max(1, (affordable - 1) / 2)))
    takes = duration((1 + 2 * views) * all_once)
    why = f"weak and as many strong ones of each image: about {takes} to look at them"
    return Choice("feature views", views, why)


def choose_side(
    sizes: ImageSizes,
    device: torch.device,
    wanted: int | None = None,
    trained: TrainedOn | None = None,
) -> Choice:
    """Height and width that every image is brought to; `trained` says of a trunk how it was."""
    if wanted is not None:
        if wanted < 8:
            raise ConfigError(f"--image-size {wanted}: images must be at least 8 pixels wide")
        return Choice("image size", wanted, AS_ASKED)
    if trained is not None:
        side = min(trained.side, LARGEST_TRAINED_SIDE[device.type])
        why = f"the backbone was trained on images of {trained.side} pixels"
        slower = "" if side == trained.side else "; more takes long without a GPU"
        return Choice("image size", side, why + slower)
    median = sizes.median_short_side
    largest = LARGEST_SIDE[device.type]
    fitting = [side for side in SIDES if side <= min(largest, max(8, 1.15 * median))]
    why = f"half of the images are at least {median} pixels on their shorter side"
    if fitting[-1] == largest and median > 1.15 * largest:
        why += f"; no more than {largest} on this device"
    if sizes.oblong:
        why += "; they are squeezed into a square, most by a fifth or more"
    return Choice("image size", fitting[-1], why)


def choose_augmentation(side: int, wanted: str | None = None) -> Choice:
    """The kind of views; digits and text must not be mirrored, which only the user can know."""
    if wanted is not None:
        return Choice("augmentation", wanted, AS_ASKED)
    if side >= CROPPED_FROM:
        return Choice("augmentation", "imagenet", "large images: random crops and flips")
    return Choice(
        "augmentation", "small", "flips and shifts; take --augmentation digits for text or digits"
    )


SMALL_TRUNK = "wrn-10-1"  # without a GPU
# For photographs there.
TRAINED_TRUNK = "efficientnet-lite0"
FOR_PHOTOGRAPHS = f"--backbone {TRAINED_TRUNK}"
LARGEST_OF_DIGITS = 16  # the side up to which a network for digits is enough


def choose_backbone(
    side: int, device: torch.device, wanted: str | None = None, to_be_tried: bool = False
) -> Choice:
    """The network trunk; `to_be_tried`: against a trained one, before training."""
    if wanted is not None:
        return Choice("backbone", wanted, AS_ASKED)
    if side <= LARGEST_OF_DIGITS:
        return Choice("backbone", "wrn-digits", "images this small need no more")
    if side > 64:
        return Choice("backbone", "resnet18", "images of more than 64 pixels")
    if device.type == "cpu":
        why = f"wrn-28-2 is too slow without a GPU; for photographs take {FOR_PHOTOGRAPHS}"
        if to_be_tried:
            why = (
                f"or {TRAINED_TRUNK}, with an image size and augmentation of its own: both are "
                "tried on labelled images before training"
            )
        return Choice("backbone", SMALL_TRUNK, why)
    return Choice("backbone", "wrn-28-2", "small images")


def choose_batch_size(labelled: int, wanted: int | None = None) -> Choice:
    """Labelled images a step; the pile's part is twice that."""
    if wanted is not None:
        return Choice("batch size", wanted, AS_ASKED)
    size = int(min(64, max(8, 2 ** round(log2(max(1, labelled / 2))))))
    return Choice("batch size", size, f"{labelled} labelled images train")


def choose_top_m(classes: int, wanted: int | None = None) -> Choice:
    """M of Eq. 9."""
    if wanted is not None:
        if not 1 <= wanted <= classes:
            raise ConfigError(f"--top-m {wanted}: it must be 1 to {classes}, the number of classes")
        return Choice("M", wanted, AS_ASKED)
    top_m = classes_to_sum(classes)
    if top_m < classes // 2:
        return Choice("M", top_m, f"of {classes} classes few hold the evidence of an image")
    return Choice("M", top_m, f"half of the {classes} classes, as in the paper")


def choose_selection_share(outlier_share: float, wanted: float | None = None) -> Choice:
    """O as a share of the pile."""
    if wanted is not None:
        return Choice("O", wanted, AS_ASKED)
    share = share_to_select(outlier_share)
    why = f"{SELECTED_OF_INLIERS} of the pile's inliers, by the estimate before training"
    return Choice("O", round(share, 3), why)


def fewest_to_certify(level: float) -> int:
    """How many held-out images it takes to reject anything at this level, 1/level − 1."""
    return ceil(1 / level - 1e-9) - 1


def choose_folds(labelled: int, held_out: int, level: float, wanted: int | None = None) -> Choice:
    """How many models judge the pile, each by the labelled images it has not seen; 0: the one does.

    Folds are for sets too small to hold images out: of `labelled` images, `held_out` would judge
    the pile. The more folds, the more images each model learns from, but the coarser the p-values:
    with K folds of n images none is below K/(n + K). So there are as many, up to five, as leave
    room for one labelled image below the threshold, and two where that is too much to ask.
    """
    if wanted is not None:
        return Choice("folds", wanted, AS_ASKED)
    if held_out >= fewest_to_certify(level):
        return Choice("folds", 0, f"{held_out} hidden images certify {percent(level)}")
    cannot = f"even {held_out} hidden images cannot certify {percent(level)}"
    # A p-value with one labelled image below it is (K + 1)/(n + K).
    for folds in range(MOST_FOLDS, 1, -1):
        below = int(folds > 2)
        if folds + below <= level * (labelled + folds):
            return Choice("folds", folds, f"{cannot}; at most twice that is promised instead")
    return Choice("folds", 0, f"{cannot}, nor can two folds of {labelled}")


def duration(seconds: float) -> str:
    """About how long, in words."""
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"


OVERRUN = 1.5  # times the minutes that were asked for: from there on it is said beforehand


def looking_overrun(looking: float, minutes: float, side: int) -> str:
    """What to say before a frozen trunk looks at all images, where the fit takes much longer.

    `looking` are the seconds of that, `side` is the size of the images; nothing where the `minutes`
    are about enough.
    """
    training = max(60 * minutes - looking, LEAST_TRAINING * 60 * minutes)
    if looking + training <= OVERRUN * 60 * minutes:
        return ""
    return (
        f"note: from here this fit will take about {duration(looking + training)}, where "
        f"{duration(60 * minutes)} are left: {duration(looking)} to look at the images and no less "
        f"than {duration(training)} to train; a smaller --image-size (now {side}) or no trained "
        f"trunk (--backbone {SMALL_TRUNK}) makes it shorter, in a new folder"
    )


@dataclass(frozen=True)
class Length:
    """Epochs and steps an epoch, from the time there is."""

    epochs: int
    epoch_steps: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.epoch_steps

    def takes(self, step_seconds: float, epoch_seconds: float) -> float:
        """Seconds in all."""
        return self.steps * step_seconds + self.epochs * epoch_seconds

    def overrun(self, seconds: float, step_seconds: float, epoch_seconds: float) -> str:
        """What to say beforehand where it will take much longer than `seconds`; else nothing."""
        takes = self.takes(step_seconds, epoch_seconds)
        if takes <= OVERRUN * seconds:
            return ""
        return (
            f"this training will take about {duration(takes)}, where there are "
            f"{duration(seconds)} for it"
        )


# Seconds of training that repay compiling its steps on a GPU: that takes up to a minute a stage,
# and a step then takes about a tenth of the time.
COMPILING_PAYS = 150.0


def execution_for(seconds: float, device: torch.device) -> str:
    """How a training of `seconds` takes its steps."""
    return "eager" if device.type == "cuda" and seconds < COMPILING_PAYS else "auto"


EPOCHS = 30  # looks at the pile: selection and evaluation come once an epoch
FEWEST_EPOCH_STEPS, MOST_EPOCH_STEPS = 10, 2000
MOST_FROZEN_EPOCH_STEPS = 40  # 1,200 steps: behind a frozen trunk, 600 learnt as much as 1,800


def choose_length(
    seconds: float,
    step_seconds: float,
    epoch_seconds: float,
    start_seconds: float = 0.0,
    most: int = MOST_EPOCH_STEPS,
) -> Length:
    """As many steps as fit into `seconds`.

    `epoch_seconds` is what selection and evaluation take once an epoch. Where that leaves too few
    steps an epoch, there are fewer epochs. `start_seconds` is what the first steps took when the
    speed was measured: that time is spent, and the other stage will spend as much; whatever they
    say, a third of the time is left to train. `most` are the steps that an epoch may have.
    """
    seconds = max(seconds - 2 * start_seconds, seconds / 3)
    for epochs in (EPOCHS, 20, 12, 8, 6, 4):
        steps = int((seconds / epochs - epoch_seconds) / step_seconds)
        if steps >= FEWEST_EPOCH_STEPS:
            return Length(epochs, min(steps, most))
    return Length(4, FEWEST_EPOCH_STEPS)
