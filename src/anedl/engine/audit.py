"""What the true labels of the pool say of a selection: written to the log, never used.

The training loop calls this after it has selected; nothing of the answer flows back.
"""

import numpy as np
from torch import Tensor

from anedl.engine.own import OWN
from anedl.engine.problem import Problem
from anedl.evaluation.starvation import starved


def selection_audit(
    selected: Tensor | None, predicted: Tensor, problem: Problem
) -> dict[str, float]:
    """How many are selected, the share of inliers among them, and the share of inliers found.

    "precision" is the share of the selected whose true class is the one `predicted` (N,) of the
    pool, from which self-training would learn the right thing. "starved" counts the classes that
    are predicted for hardly any of the selected, which self-training leaves behind.

    Of a user's own pile nobody knows the truth: the count and the starved classes are all.
    """
    truth = problem.pool_truth()
    positions = np.arange(len(truth)) if selected is None else selected.cpu().numpy()
    guesses = predicted.cpu().numpy()[positions]
    without = starved(guesses, len(problem.split.known_classes))
    found = {"count": float(len(positions)), "starved": float(without.sum())}
    if problem.setting.dataset == OWN:
        return found
    inlier = truth >= 0
    chosen = inlier[positions]
    right = chosen & (guesses == truth[positions])
    return found | {
        "purity": float(chosen.mean()) if len(chosen) else 0.0,
        "precision": float(right.mean()) if len(chosen) else 0.0,
        "recall": float(chosen.sum() / max(1, inlier.sum())),
    }
