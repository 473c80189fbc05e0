"""The Python interface, for notebooks and scripts: `anedl.train("digits", seed=0)`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anedl.engine.config import TrainConfig
from anedl.engine.spec import make_spec, method_begun_with
from anedl.engine.train import Surroundings
from anedl.engine.train import train as run_training
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.export.calibrating import Calibrated, calibrate
from anedl.export.predictor import load
from anedl.fit.flow import Fitted
from anedl.fit.python import fit
from anedl.methods.base import Method
from anedl.methods.catalogue import name_of
from anedl.methods.default import DEFAULT_METHOD
from anedl.options import option_types

__all__ = ["Calibrated", "Fitted", "Run", "calibrate", "fit", "load", "train"]


@dataclass(frozen=True)
class Run:
    """A finished run: where it is and what came out."""

    folder: Path
    results: dict[str, Any]

    @property
    def test(self) -> OpenSetMetrics:
        """Test metrics of the last epoch's model."""
        return OpenSetMetrics.from_json(self.results["last"]["test"])

    @property
    def best_validation_test(self) -> OpenSetMetrics:
        """Test metrics of the model with the lowest validation error."""
        return OpenSetMetrics.from_json(self.results["best_val"]["test"])


def train(
    setting: str,
    method: str | type[Method] = DEFAULT_METHOD,
    seed: int = 0,
    *,
    out: str | Path | None = None,
    fold: int | None = None,
    development: bool = False,
    pool_limit: int | None = None,
    budget: str = "full",
    resume: bool = False,
    device: str = "auto",
    data: str | Path | None = None,
    workers: int | None = None,
    quiet: bool = True,
    **options: Any,
) -> Run:
    """Train `method` on `setting` and return the run.

    Args:
        setting: a name that `anedl settings` lists, such as "digits" or "cifar100-55/50", or other
            counts of such a data set: "cifar100-20/4" has 20 known classes with 4 labels each.
        method: a name that `anedl methods` lists, "path/to/file.py:ClassName", or a class that
            was imported (not one of the script that runs or of a notebook).
        seed: of the initial weights, the order of images and their augmentation; where a setting
            has a labelled draw for each seed, of that too.
        out: run folder; default: a new temporary folder.
        fold: which labelled draw, if not the one that belongs to the seed.
        development: train on the development split.
        pool_limit: use only so many pool images.
        budget: "full" (as long as the authors' code trains) or "fast" (a quarter of it).
        resume: go on with the run in `out`.
        device: "auto", "cpu", "cuda" …
        data: folder of the data sets.
        workers: processes that read image files while training; 0: none beside the caller's.
            Default: one a core, at most 8. The result does not depend on it.
        quiet: show no progress.
        options: any option of the engine (`epochs=50`, `learning_rate=0.01`) or of the method
            (`top_m=10`, `kl="original"`).

    Raises:
        ConfigError: a name or value is not known; the message suggests the nearest.
        DataError: the data set is not there or damaged; the message says how to get it.
    """
    engine_names = option_types(TrainConfig)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="anedl-"))
    name = method if isinstance(method, str) else name_of(method)
    spec = make_spec(
        setting,
        name,
        seed,
        fold,
        development,
        pool_limit,
        train={name: value for name, value in options.items() if name in engine_names},
        options={name: value for name, value in options.items() if name not in engine_names},
        budget=budget,
        entry=method_begun_with(folder, name) if resume else None,
    )
    surroundings = Surroundings(
        device=device,
        data_root=None if data is None else Path(data),
        resume=resume,
        quiet=quiet,
        workers=workers,
    )
    return Run(folder, run_training(spec, folder, surroundings))
