"""How well a model rejects outliers from elsewhere, measured against the test's inliers.

Apart from the metrics of the test set itself, whose outliers are of classes that the pool holds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from anedl.errors import AnedlError
from anedl.evaluation.metrics import OUTLIER, Array, aupr_in, aupr_out, auroc, fpr_at_tpr


@dataclass(frozen=True)
class UnseenScore:
    """How well one score tells the test's inliers from a set of outliers.

    `rejected` is the share of the outliers below the threshold that validation gave.
    """

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95: float
    rejected: float


@dataclass(frozen=True)
class UnseenMetrics:
    """All figures of one model on one set of outliers, `images` of them."""

    images: int
    by_score: dict[str, UnseenScore]

    def to_json(self) -> dict[str, Any]:
        """Turn into plain dicts and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "UnseenMetrics":
        """Rebuild from what `to_json` returned."""
        try:
            by_score = {name: UnseenScore(**row) for name, row in document["by_score"].items()}
            return cls(**{**document, "by_score": by_score})
        except (KeyError, TypeError, AttributeError) as error:
            raise AnedlError(
                f"not figures of outliers as `to_json` writes them ({error}); evaluate the run "
                f"again"
            ) from error


def evaluate_unseen(
    inliers: Mapping[str, Array], outliers: Mapping[str, Array], thresholds: Mapping[str, float]
) -> UnseenMetrics:
    """Compare the scores (N,) of inliers with those (M,) of outliers, by the name of the score.

    A score that is NaN or infinite for some outlier has no figures: a model need not be sound so
    far from its data, and the other scores still are.
    """
    (count,) = {len(values) for values in outliers.values()}
    by_score = {}
    for name, outside in outliers.items():
        if not np.isfinite(outside).all():
            continue
        inside = inliers[name]
        values = np.concatenate([inside, outside])
        targets = np.repeat([0, OUTLIER], [len(inside), len(outside)])
        by_score[name] = UnseenScore(
            auroc=auroc(values, targets),
            aupr_in=aupr_in(values, targets),
            aupr_out=aupr_out(values, targets),
            fpr95=fpr_at_tpr(values, targets),
            rejected=float((np.asarray(outside) < thresholds[name]).mean()),
        )
    return UnseenMetrics(count, by_score)
