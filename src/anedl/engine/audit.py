"""What the true labels of the pool say of a selection: written to the log, never used.

The training loop calls this after it has selected; nothing of the answer flows back.
"""

import numpy as np
from torch import Tensor

from anedl.engine.own import OWN
from anedl.engine.problem import Problem


def selection_audit(
    selected: Tensor | None, predicted: Tensor, problem: Problem
) -> dict[str, float]:
    """How many are selected, the share of inliers among them, and the share of inliers found.

    "precision" is the share of the selected whose true class is the one `predicted` (N,) of the
    pool, from which self-training would learn the right thing.

    Of a user's own pile nobody knows the truth: there is only the count.
    """
    truth = problem.pool_truth()
    positions = np.arange(len(truth)) if selected is None else selected.cpu().numpy()
    if problem.setting.dataset == OWN:
        return {"count": float(len(positions))}
    inlier = truth >= 0
    chosen = inlier[positions]
    right = chosen & (predicted.cpu().numpy()[positions] == truth[positions])
    return {
        "count": float(len(positions)),
        "purity": float(chosen.mean()) if len(chosen) else 0.0,
        "precision": float(right.mean()) if len(chosen) else 0.0,
        "recall": float(chosen.sum() / max(1, inlier.sum())),
    }
