"""What the user of `anedl fit` may decide."""

from collections.abc import Callable
from dataclasses import dataclass

from anedl.errors import ConfigError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What the user may decide; None leaves a choice to `anedl fit`."""

    minutes: float = 10.0
    level: float = 0.05
    seed: int = 0
    image_size: int | None = None
    augmentation: str | None = None
    backbone: str | None = None
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

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise ConfigError(f"--minutes {self.minutes:g}: there must be some time to train")
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
        for name in ("batch_size", "top_m", "epochs", "epoch_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: must be at least 1")
