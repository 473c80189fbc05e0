"""Open-set semi-supervised learning with evidential outlier detection.

    import anedl
    run = anedl.train("digits", method="anedl", seed=0)
    run.test.error, run.test.by_score["score"].auroc

``import anedl`` is cheap: nothing heavy is loaded before a name is used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "train"]

if TYPE_CHECKING:
    from anedl.api import Run, train


def __getattr__(name: str) -> Any:
    if name in ("train", "Run"):
        from anedl import api

        return getattr(api, name)
    raise AttributeError(f"module 'anedl' has no attribute {name!r}")
