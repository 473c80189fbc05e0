"""How a run trains: length, batch, optimiser, averages, precision, and what is kept and logged."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from typing import Any, Literal, get_args

from anedl.errors import ConfigError
from anedl.options import option

# The released EMA and BatchNorm look back over 1,000 steps. A run shorter than 20,000 steps would
# then be judged by averages that still remember its random start, so they look back over at most
# a twentieth of the run.
LONGEST_MEMORY_STEPS = 1000
MEMORY_SHARE_OF_RUN = 1 / 20

Budget = Literal["full", "fast"]
CUSTOM = "custom"  # what a run of any other length is recorded as
# Epochs of a whole run by data set; "" stands for every other one. The paper states no length: 200
# is the released code's, 100 for ImageNet-30 and the 12 short epochs of the digits are ours.
EPOCHS: dict[Budget, dict[str, int]] = {
    "full": {"": 200, "imagenet30": 100, "digits": 12, "own": 30},
    "fast": {"": 50, "imagenet30": 25, "digits": 6, "own": 15},
}
BUDGETS: tuple[Budget, ...] = get_args(Budget)
# Options that say how long a run and its parts are: who changes one leaves the budget.
LENGTH_OPTIONS = ("epochs", "epoch_steps", "pretrain_epochs", "horizon", "warmup_steps")
# Options that change what is written down, and nothing that is learnt.
_OF_THE_LOG = ("log_every",)
# To this side small images are enlarged for a frozen trunk: at 32 pixels it sees little.
FROZEN_SIDE = 128


def without_log(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name, less those that only a log shows."""
    return {name: value for name, value in options.items() if name not in _OF_THE_LOG}


@dataclass(frozen=True)
class TrainConfig:
    """Options of the engine, the same for every method."""

    epochs: int = option(200, "epochs in all, both stages; an epoch is a number of steps")
    epoch_steps: int = option(1024, "steps an epoch; selection and evaluation come once an epoch")
    pretrain_share: float | None = option(
        None, "E_FM as a share of the run, in whole epochs; default: the method's, often 0.05"
    )
    pretrain_epochs: int = option(
        10,
        "E_FM: epochs before self-training starts, in place of the share; several networks of a "
        "run have equal parts of it",
    )
    batch_size: int = option(64, "labelled images a step; the pool's part is a multiple of it")
    optimiser: Literal["sgd", "adam"] = option("sgd", "which optimiser")
    learning_rate: float = option(0.03, "first learning rate")
    momentum: float = option(0.9, "momentum of SGD, beta_1 of Adam")
    nesterov: bool = option(True, "Nesterov's form of momentum (SGD)")
    beta_2: float = option(0.999, "second-moment decay of Adam")
    weight_decay: float = option(
        5e-4, "decay of weight matrices and kernels, never of biases or BN"
    )
    multiplicative_decay: float = option(
        0.0,
        "d: after each step of self-training every parameter, biases and BN too, is multiplied by "
        "1 − d·lr",
        later=True,
    )
    schedule: Literal["cosine", "cosine-7/16", "cosine-5/16", "constant"] = option(
        "cosine",
        "cosine falls to zero as lr·(1+cos(πt/T))/2; cosine-7/16 is the released lr·cos(7πt/16T), "
        "the default on photographs, cosine-5/16 likewise",
    )
    hold_pretraining: bool = option(
        False,
        "keep the first learning rate through pre-training; the schedule begins after it",
        later=True,
    )
    horizon: int = option(0, "steps T over which the schedule falls; 0: the length of the run")
    warmup_steps: int = option(0, "steps of linear rise before the schedule")
    cooldown_share: float = option(
        0.0,
        "share of the run, at its end, over which the rate falls linearly to zero, whatever the "
        "schedule says",
        later=True,
    )
    ema_decay: float | None = option(
        None, "decay of the averaged weights; default: a memory of 1000 steps, at most run/20"
    )
    bn_momentum: float | None = option(
        None, "weight of a new batch in BatchNorm's running statistics; default: as the EMA"
    )
    fresh_statistics: int = option(
        0,
        "batches of plain images over which, after each epoch, BatchNorm's statistics are "
        "measured anew for the averaged weights; 0: those of training, as released",
        later=True,
    )
    backbone: str | None = option(None, "network trunk; default: the setting's")
    frozen: bool = option(
        False,
        "keep the trunk as it was trained elsewhere (backbone efficientnet-lite0, "
        "timm:MODEL:pretrained …); what learns is a layer behind it, from features made once",
        later=True,
    )
    feature_views: int = option(
        4, "weak views, and as many strong ones, of which a frozen trunk's features are kept",
        later=True,
    )  # fmt: skip
    frozen_side: int = option(
        0,
        "pixels a side to which images are enlarged for a frozen trunk, 0: as they are; default: "
        "128 for a setting's images that are smaller, 0 for others",
        later=True,
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto",
        "arithmetic of the trunk; auto: bf16 on a GPU that has it, fp16 on others; on a CPU bf16 "
        "if it computes that by itself and images are 24 pixels wide or more, else fp32; what it "
        "judges it judges in fp32",
    )
    execution: Literal["auto", "eager", "compiled", "captured"] = option(
        "auto", "how steps run; auto: compiled and captured in a CUDA graph on a GPU, else eager"
    )
    stream: Literal["auto", "resident", "disk"] = option(
        "auto",
        "where images live; auto: on the device unless they are files that need 8 GiB or larger "
        "originals, which are then read step by step; the two draw other random numbers",
    )
    accumulate: int = option(
        1,
        "split a batch into this many parts, for less memory; BatchNorm then sees smaller batches",
    )
    clip_norm: float = option(0.0, "limit of the gradient norm; 0: none")
    evaluate_every: int = option(1, "epochs between evaluations on the validation images")
    test_while_training: bool = option(
        False, "also record test figures at every evaluation; they never choose anything"
    )
    log_every: int = option(64, "steps between log lines; a non-finite loss is noticed there")

    def __post_init__(self) -> None:
        for name in ("epochs", "epoch_steps", "batch_size", "accumulate", "evaluate_every",
                     "log_every", "feature_views"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {getattr(self, name)}")
        for name in ("horizon", "warmup_steps", "fresh_statistics", "frozen_side"):
            if getattr(self, name) < 0:
                raise ConfigError(f"option {name}: must be 0 or more, got {getattr(self, name)}")
        for name in ("pretrain_share", "cooldown_share"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise ConfigError(f"option {name}: must lie in 0…1, got {share}")
        if self.pretrain_share is None and not 0 <= self.pretrain_epochs <= self.epochs:
            raise ConfigError(
                f"option pretrain_epochs: must lie in 0…epochs ({self.epochs}), "
                f"got {self.pretrain_epochs}"
            )
        for name in ("ema_decay", "bn_momentum", "momentum", "beta_2"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"option {name}: must lie in 0…1, got {value}")
        for name in ("learning_rate", "weight_decay", "multiplicative_decay", "clip_norm"):
            value = getattr(self, name)
            if not 0 <= value < inf or (name == "learning_rate" and value == 0):
                least = "positive" if name == "learning_rate" else "0 or more"
                raise ConfigError(f"option {name}: must be {least} and finite, got {value}")
        if self.frozen and self.fresh_statistics:
            raise ConfigError(
                "option fresh_statistics: a frozen trunk keeps the statistics it came with; leave "
                "out one of the two"
            )
        if self.frozen_side and not self.frozen:
            raise ConfigError(
                "option frozen_side: is for a frozen trunk; add frozen, or leave it out"
            )
        if self.batch_size % self.accumulate:
            raise ConfigError(
                f"option accumulate: {self.accumulate} does not divide batch_size {self.batch_size}"
            )

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.epoch_steps

    def resolved(self, backbone: str, networks: int = 1) -> "TrainConfig":
        """Fill in what was left to the length of the run and to the setting.

        A share of pre-training becomes `pretrain_epochs`; what is recorded is the number used.
        Where `networks` share the run, an average is of one of them.
        """
        own_steps = self.steps / networks
        memory = min(LONGEST_MEMORY_STEPS, max(1.0, own_steps * MEMORY_SHARE_OF_RUN))
        return replace(
            self,
            pretrain_share=None,
            pretrain_epochs=self.pretrain_epochs
            if self.pretrain_share is None
            else whole_epochs(self.pretrain_share, self.epochs),
            ema_decay=1 - 1 / memory if self.ema_decay is None else self.ema_decay,
            bn_momentum=1 / memory if self.bn_momentum is None else self.bn_momentum,
            backbone=self.backbone or backbone,
        )


def whole_epochs(share: float, epochs: int) -> int:
    """The whole number of epochs nearest to `share` of the run.

    A share between 0 and 1 leaves both stages an epoch where there are two; a run of one epoch
    then only self-trains.
    """
    nearest = floor(share * epochs + 0.5)
    if share in (0, 1):
        return nearest
    return min(max(nearest, 1), epochs - 1)


def restart_epochs(networks: int, epochs: int) -> tuple[int, ...]:
    """The epochs at whose beginning the next of `networks` takes over, each with an equal part."""
    return tuple(whole_epochs(number / networks, epochs) for number in range(1, networks))


def pretraining_of_each(networks: int, pretrain_epochs: int) -> int:
    """Epochs before self-training of every network, where several share those of a run."""
    return ceil(pretrain_epochs / networks)


def budget_epochs(dataset: str, budget: Budget = "full") -> int:
    """Epochs of a run of this budget on a data set."""
    return EPOCHS[budget].get(dataset, EPOCHS[budget][""])


def default_frozen_side(dataset: str, image_size: int) -> int:
    """Of `frozen_side`; a user's files are decoded at a size that suits the trunk."""
    return FROZEN_SIDE if dataset != "own" and image_size < FROZEN_SIDE else 0


def train_defaults(dataset: str, budget: Budget = "full") -> dict[str, Any]:
    """What data set and budget change of `TrainConfig`'s defaults, before a method changes more."""
    options: dict[str, Any] = {"epochs": budget_epochs(dataset, budget), "pretrain_share": 0.05}
    if dataset not in ("digits", "own"):
        # As FixMatch, OpenMatch and most of what descends from them was published; those of whom
        # nothing is known have it too. Short runs have a rate that falls to zero.
        options["schedule"] = "cosine-7/16"
    if dataset == "digits":
        # 1,119 pool images of 8×8 pixels: half a minute on a CPU.
        options |= {"epoch_steps": 50, "pretrain_share": 0.25, "batch_size": 32,
                    "weight_decay": 1e-4, "log_every": 25, "test_while_training": True}  # fmt: skip
    if dataset == "own":
        # A user's images: minutes instead of hours, so both stages come early and often.
        options |= {"epoch_steps": 100, "pretrain_share": 0.25, "log_every": 25}
    if dataset == "imagenet30":
        options["pretrain_share"] = 0.1  # the paper's 10 epochs, of half as many
    return options
