"""Open-set semi-supervised learning with evidential outlier detection.

    import anedl
    run = anedl.train("digits", method="anedl", seed=0)
    run.test.error, run.test.by_score["score"].auroc

    fitted = anedl.fit("labelled", "pile", minutes=5)
    anedl.load(fitted.folder).predict(images)

``import anedl`` is cheap: nothing heavy is loaded before a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Calibrated",
    "Fitted",
    "OpenSetClassifier",
    "Run",
    "__version__",
    "calibrate",
    "fit",
    "load",
    "train",
]

if TYPE_CHECKING:
    from anedl import fit
    from anedl.api import Calibrated, Fitted, Run, calibrate, load, train
    from anedl.estimator import OpenSetClassifier


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "fit":
        # A package that can be called: a function of this name would hide it, or it the function.
        return import_module("anedl.fit")
    if name in ("Calibrated", "Fitted", "Run", "calibrate", "load", "train"):
        from anedl import api

        return getattr(api, name)
    if name == "OpenSetClassifier":
        from anedl.estimator import OpenSetClassifier

        return OpenSetClassifier
    raise AttributeError(f"module 'anedl' has no attribute {name!r}")
