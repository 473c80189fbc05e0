"""What the user of `anedl fit` may decide."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from anedl.errors import ConfigError
from anedl.intake.duplicates import MOST_NEAR_DISTANCE
from anedl.methods.default import DEFAULT_METHOD

Say = Callable[[str], None]

# Options of the engine that are a wish of their own here.
OF_EVERY_TRAINING = ("epochs", "epoch_steps", "batch_size", "backbone", "frozen", "feature_views")


@dataclass(frozen=True)
class Wishes:
    """What the user may decide; None leaves a choice to `anedl fit`.

    `decisions` are files of `anedl review` (or the run folders that hold them), or one of them.
    `near_distance` is in bits: images whose hashes differ by no more are near-duplicates, 0 for
    those of equal pixels only; None is the usual distance, or that of the run that goes on.
    `options` are further ones of the engine or of the `method`, by name.
    """

    minutes: float = 10.0
    level: float = 0.05
    seed: int = 0
    decisions: tuple[Path, ...] | Path | str = ()
    folds: int | None = None
    near_distance: int | None = None
    method: str = DEFAULT_METHOD
    options: Mapping[str, Any] = field(default_factory=dict)
    image_size: int | None = None
    augmentation: str | None = None
    backbone: str | None = None
    frozen: bool | None = None
    feature_views: int | None = None
    batch_size: int | None = None
    top_m: int | None = None
    selection_share: float | None = None
    epochs: int | None = None
    epoch_steps: int | None = None
    target_precision: float = 0.95
    benjamini_hochberg: bool = False
    device: str = "auto"
    workers: int | None = None
    resume: bool = False
    quiet: bool = False

    @property
    def decision_files(self) -> tuple[Path, ...]:
        """The files of decisions, however they were given."""
        given = (self.decisions,) if isinstance(self.decisions, str | Path) else self.decisions
        return tuple(map(Path, given))

    @property
    def folds_wanted(self) -> int | None:
        """How many folds; None leaves it to the choice. What limits false alarms allows none."""
        return 0 if self.benjamini_hochberg else self.folds

    def unrecorded(self) -> dict[str, Any]:
        """The wishes that change the outcome but show in nothing else that a run folder holds."""
        return {
            "target_precision": self.target_precision,
            "device": self.device,
            # Whatever a caller in Python gave, as it would be typed.
            "options": json.loads(json.dumps(dict(self.options), default=str)),
        }

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and isfinite(60 * self.minutes)):
            raise ConfigError(
                f"--minutes {self.minutes:g}: there must be some time to train, and an end to it"
            )
        if self.seed < 0:
            raise ConfigError(f"--seed {self.seed}: a seed is 0 or more")
        if not 0 < self.level < 1:
            raise ConfigError(
                f"--target-inlier-loss {self.level:g}: the share of known images that may be "
                f"called unknown lies between 0 and 1"
            )
        if not 0 < self.target_precision < 1:
            raise ConfigError(
                f"--target-precision {self.target_precision:g}: the share of accepted images that "
                f"are right lies between 0 and 1"
            )
        if self.selection_share is not None and not 0 < self.selection_share <= 1:
            raise ConfigError(
                f"--selection-share {self.selection_share:g}: a share of the pile is above 0 and "
                f"at most 1"
            )
        if self.folds is not None and (self.folds == 1 or self.folds < 0):
            raise ConfigError(f"--folds {self.folds}: two folds or more, or 0 for none")
        if self.folds and self.benjamini_hochberg:
            raise ConfigError(
                f"--folds {self.folds}: p-values from folds promise nothing about the share of "
                f"false alarms; leave out --false-alarms or --folds"
            )
        if self.near_distance is not None and not 0 <= self.near_distance <= MOST_NEAR_DISTANCE:
            raise ConfigError(
                f"--near-distance {self.near_distance}: 0 (only equal pixels) to "
                f"{MOST_NEAR_DISTANCE} bits of the hashes that near-duplicates are found by"
            )
        for name in OF_EVERY_TRAINING:
            if name in self.options:
                raise ConfigError(
                    f"--option {name}=…: say it with --{name.replace('_', '-')}, which holds for "
                    f"every training of a fit"
                )
        if "frozen_side" in self.options:
            raise ConfigError(
                "--option frozen_side=…: images of files are decoded at the size that the trunk "
                "sees; choose it with --image-size"
            )
        if self.method == "supervised":
            raise ConfigError(
                "--method supervised: the labels alone are trained anyway, to compare with; name "
                "a method that learns from the pile"
            )
        for name in ("batch_size", "top_m", "epochs", "epoch_steps", "feature_views"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: must be at least 1")
