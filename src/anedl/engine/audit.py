"""What the true labels of the pool say of a selection: written to the log, never used.

The training loop calls this after it has selected; nothing of the answer flows back.
"""

import numpy as np
from torch import Tensor

from anedl.engine.own import OWN
from anedl.engine.problem import Problem


def selection_audit(selected: Tensor | None, problem: Problem) -> dict[str, float]:
    """How many are selected, the share of inliers among them, and the share of inliers found.

    Of a user's own pile nobody knows the truth: there is only the count.
    """
    truth = problem.pool_truth() >= 0
    positions = np.arange(len(truth)) if selected is None else selected.cpu().numpy()
    if problem.setting.dataset == OWN:
        return {"count": float(len(positions))}
    chosen = truth[positions]
    return {
        "count": float(len(positions)),
        "purity": float(chosen.mean()) if len(chosen) else 0.0,
        "recall": float(chosen.sum() / max(1, truth.sum())),
    }
