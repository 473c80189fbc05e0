"""Metrics of open-set recognition, exact under ties.

Conventions, once for the whole file: `targets` (N,) are integers, 0..K−1 for a known class and −1
for an outlier; a score is higher the more an image looks like an inlier; an image is accepted at a
threshold when its score ≥ the threshold. Every result is a fraction in 0..1, not a percentage.
What a metric needs and the set lacks (no outliers, no inliers) raises `AnedlError`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anedl.errors import AnedlError, unknown_name

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

OUTLIER = -1


@dataclass(frozen=True)
class ScoreMetrics:
    """How well one score tells inliers from outliers; `balanced_accuracy` needs a threshold."""

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95: float
    oscr: float
    balanced_accuracy: float | None = None


@dataclass(frozen=True)
class OpenSetMetrics:
    """All metrics of one model on one set; `by_score` is empty where the set has no outliers."""

    error: float
    ece: float
    brier: float
    by_score: dict[str, ScoreMetrics]

    def to_json(self) -> dict[str, Any]:
        """Turn into plain dicts and floats."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "OpenSetMetrics":
        """Rebuild from what `to_json` returned."""
        try:
            by_score = {name: ScoreMetrics(**row) for name, row in document["by_score"].items()}
            return cls(**{**document, "by_score": by_score})
        except (KeyError, TypeError, AttributeError) as error:
            raise AnedlError(
                f"not a set of metrics as `to_json` writes it ({error}); evaluate the run again"
            ) from error


class RocCurve(NamedTuple):
    """Points of a ROC curve with inliers as positive, from (0, 0) to (1, 1)."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray


class OscrCurve(NamedTuple):
    """Points of an open-set classification rate curve, thresholds falling, from (0, 0)."""

    false_positive_rate: FloatArray
    correct_rate: FloatArray


@dataclass(frozen=True)
class ReliabilityBin:
    """The inliers whose confidence lies in (low, high]: how sure they are, how often right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def evaluate(
    probabilities: Array,
    targets: Array,
    scores: Mapping[str, Array],
    thresholds: Mapping[str, float] | None = None,
) -> OpenSetMetrics:
    """Compute every metric of one model on one set.

    `probabilities` is (N, K), each of `scores` (N,). A score with an entry in `thresholds` also
    gets its balanced accuracy there. A set without outliers gets the closed-set metrics alone.
    """
    thresholds = thresholds or {}
    for name in thresholds:
        if name not in scores:
            raise unknown_name("score with a threshold", name, scores)
    by_score = {}
    if np.any(np.asarray(targets) == OUTLIER):
        for name, values in scores.items():
            threshold = thresholds.get(name)
            by_score[name] = ScoreMetrics(
                auroc=auroc(values, targets),
                aupr_in=aupr_in(values, targets),
                aupr_out=aupr_out(values, targets),
                fpr95=fpr_at_tpr(values, targets),
                oscr=oscr(probabilities, targets, values),
                balanced_accuracy=None
                if threshold is None
                else balanced_accuracy(probabilities, targets, values, threshold),
            )
    return OpenSetMetrics(
        error=error_rate(probabilities, targets),
        ece=expected_calibration_error(probabilities, targets),
        brier=brier_score(probabilities, targets),
        by_score=by_score,
    )


def error_rate(probabilities: Array, targets: Array) -> float:
    """Share of inliers whose largest output is not their class.

    `probabilities` is (N, K); logits do as well, as only their order matters. The first of tied
    outputs wins. Outliers are left out.
    """
    return float((~_correct(*_inlier_outputs(probabilities, targets))).mean())


def auroc(scores: Array, targets: Array) -> float:
    """Area under the ROC curve of outlier against inlier, ties counted as one half.

    Outliers are positive and ranked by −score, which is the same number as inliers ranked by score.
    """
    from sklearn.metrics import roc_auc_score

    scores, inlier = _checked_scores(scores, targets)
    return float(roc_auc_score(~inlier, -scores))


def aupr_in(scores: Array, targets: Array) -> float:
    """Average precision with inliers as positive."""
    from sklearn.metrics import average_precision_score

    scores, inlier = _checked_scores(scores, targets)
    return float(average_precision_score(inlier, scores))


def aupr_out(scores: Array, targets: Array) -> float:
    """Average precision with outliers as positive, ranked by −score."""
    from sklearn.metrics import average_precision_score

    scores, inlier = _checked_scores(scores, targets)
    return float(average_precision_score(~inlier, -scores))


def fpr_at_tpr(scores: Array, targets: Array, tpr: float = 0.95) -> float:
    """Share of outliers accepted at the largest threshold that accepts `tpr` of the inliers.

    Inliers are positive. The threshold is one of the scores, and all images that share it are
    accepted together; nothing is interpolated.
    """
    scores, inlier = _checked_scores(scores, targets)
    threshold = acceptance_threshold(scores[inlier], tpr)
    return float((scores[~inlier] >= threshold).mean())


def acceptance_threshold(validation_scores: Array, level: float = 0.95) -> float:
    """Return the largest threshold that accepts at least the share `level` of these inliers.

    `validation_scores` (N,) are of inliers only. The share holds on these images, not as a
    guarantee on new ones.
    """
    scores = _finite_vector(validation_scores)
    if len(scores) == 0:
        raise AnedlError("no inlier scores to set a threshold from; give at least one")
    if not 0.0 < level <= 1.0:
        raise AnedlError(f"the accepted share must lie in (0, 1], got {level}")
    # Dividing rounds 19 / 20 to the very float written 0.95; multiplying by the level would not.
    shares = np.arange(1, len(scores) + 1) / len(scores)
    return float(np.sort(scores)[::-1][np.argmax(shares >= level)])


def roc_curve(scores: Array, targets: Array, max_points: int = 500) -> RocCurve:
    """Return at most `max_points` points of the ROC curve, inliers as positive, both ends included.

    Kept points lie evenly along the curve, so that steep parts keep their shape.
    """
    if max_points < 2:
        raise AnedlError(f"a ROC curve needs at least 2 points, got max_points = {max_points}")
    scores, inlier = _checked_scores(scores, targets)
    false_positive = _accepted_share(scores, ~inlier, (~inlier).sum())
    true_positive = _accepted_share(scores, inlier, inlier.sum())
    if len(true_positive) > max_points:
        travelled = false_positive + true_positive
        keep = np.unique(np.searchsorted(travelled, np.linspace(0.0, 2.0, max_points)))
        false_positive, true_positive = false_positive[keep], true_positive[keep]
    return RocCurve(false_positive, true_positive)


def oscr(probabilities: Array, targets: Array, scores: Array) -> float:
    """Area under the open-set classification rate curve (Dhamija et al. 2018).

    It is taken by trapezoids from (0, 0), so tied images enter together. It never exceeds the
    accuracy on inliers.
    """
    fpr, ccr = oscr_curve(probabilities, targets, scores)
    return float(np.sum(np.diff(fpr) * (ccr[1:] + ccr[:-1]) / 2.0))


def oscr_curve(probabilities: Array, targets: Array, scores: Array) -> OscrCurve:
    """The open-set classification rate curve, one point for each distinct score as threshold.

    CCR is the share of inliers both classified correctly and accepted, FPR the share of outliers
    accepted.
    """
    scores, inlier = _checked_scores(scores, targets)
    known, known_targets = _inlier_outputs(probabilities, targets)
    correct = np.zeros(len(scores), dtype=bool)
    correct[inlier] = _correct(known, known_targets)
    return OscrCurve(
        _accepted_share(scores, ~inlier, (~inlier).sum()),
        _accepted_share(scores, correct, inlier.sum()),
    )


def balanced_accuracy(
    probabilities: Array, targets: Array, scores: Array, threshold: float
) -> float:
    """Mean recall over the known classes and "unknown", rejected images counting as unknown.

    Recall of a known class: its images both accepted and classified correctly. Recall of unknown:
    outliers rejected. A class without a single image in the set has no recall and is left out.
    """
    if np.isnan(threshold):
        raise AnedlError("the threshold is NaN; set it from validation scores")
    scores, inlier = _checked_scores(scores, targets)
    known, known_targets = _inlier_outputs(probabilities, targets)
    right = scores < threshold
    right[inlier] = ~right[inlier] & _correct(known, known_targets)
    targets = np.asarray(targets)
    return float(np.mean([right[targets == label].mean() for label in np.unique(targets)]))


def reliability(probabilities: Array, targets: Array, bins: int = 15) -> tuple[ReliabilityBin, ...]:
    """Sort inliers by confidence (largest probability) into equal bins; empty ones are left out.

    A confidence on an edge belongs to the bin below it.
    """
    if bins < 1:
        raise AnedlError(f"reliability needs at least one bin, got {bins}")
    known, known_targets = _inlier_probabilities(probabilities, targets)
    confidence, correct = known.max(axis=1), _correct(known, known_targets)
    edges = np.arange(bins + 1) / bins
    chosen = np.digitize(confidence, edges[1:-1], right=True)
    return tuple(
        ReliabilityBin(
            low=float(edges[index]),
            high=float(edges[index + 1]),
            count=int((chosen == index).sum()),
            confidence=float(confidence[chosen == index].mean()),
            accuracy=float(correct[chosen == index].mean()),
        )
        for index in np.unique(chosen)
    )


def expected_calibration_error(probabilities: Array, targets: Array, bins: int = 15) -> float:
    """Mean gap of confidence and accuracy over equal-width bins, by count; inliers only."""
    filled = reliability(probabilities, targets, bins)
    gaps = sum(row.count * abs(row.accuracy - row.confidence) for row in filled)
    return gaps / sum(row.count for row in filled)


def brier_score(probabilities: Array, targets: Array) -> float:
    """Mean over inliers of Σ_k (p_k − [k = target])², between 0 and 2."""
    known, known_targets = _inlier_probabilities(probabilities, targets)
    one_hot = np.eye(known.shape[1])[known_targets]
    return float(((known - one_hot) ** 2).sum(axis=1).mean())


def negative_log_likelihood(probabilities: Array, targets: Array) -> float:
    """Mean over inliers of −log p[target], in nats.

    A probability that underflowed to zero counts as the smallest normal float32, so that one image
    cannot make the mean infinite.
    """
    known, known_targets = _inlier_probabilities(probabilities, targets)
    of_target = known[np.arange(len(known)), known_targets]
    return float(-np.log(np.maximum(of_target, np.finfo(np.float32).tiny)).mean())


def _accepted_share(scores: FloatArray, member: BoolArray, total: int) -> FloatArray:
    """Share of `total` that are members and accepted: (distinct scores + 1,), thresholds falling.

    The first entry is zero, for a threshold above every score.
    """
    _, level = np.unique(-scores, return_inverse=True)
    counts = np.bincount(level, weights=member)
    return np.concatenate([[0.0], np.cumsum(counts) / total])


def _correct(outputs: FloatArray, targets: Array) -> BoolArray:
    """Whether the largest output is the target's; the first wins a tie."""
    return np.asarray(outputs.argmax(axis=1) == targets)


def _finite_vector(scores: Array) -> FloatArray:
    """Scores as float64, which keeps every tie and every order of float32."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1:
        raise AnedlError(f"scores must be one number an image, (N,), got shape {scores.shape}")
    broken = int((~np.isfinite(scores)).sum())
    if broken:
        raise AnedlError(
            f"{broken} of {len(scores)} scores are NaN or infinite; check the model's outputs"
        )
    return scores


def _checked_targets(targets: Array) -> Array:
    """Targets as they came, refused when they are not (N,) integers from −1 up."""
    targets = np.asarray(targets)
    if targets.ndim != 1 or not np.issubdtype(targets.dtype, np.integer):
        raise AnedlError(f"targets must be (N,) integers, got {targets.shape} {targets.dtype}")
    if len(targets) and targets.min() < OUTLIER:
        raise AnedlError(f"target {targets.min()} is no class; an outlier is written −1")
    return targets


def _checked_scores(scores: Array, targets: Array) -> tuple[FloatArray, BoolArray]:
    """Scores as float64 and which of them belong to inliers, with both kinds present."""
    scores, targets = _finite_vector(scores), _checked_targets(targets)
    if len(scores) != len(targets):
        raise AnedlError(f"{len(scores)} scores but {len(targets)} targets; one of each an image")
    inlier = targets != OUTLIER
    if not inlier.any() or inlier.all():
        missing = "outliers (target −1)" if len(targets) and inlier.all() else "inliers"
        raise AnedlError(f"the set has no {missing}, and the metric compares the two; add some")
    return scores, np.asarray(inlier)


def _inlier_outputs(outputs: Array, targets: Array) -> tuple[FloatArray, Array]:
    """The inliers' rows of (N, K) outputs as float64, and their targets."""
    outputs, targets = np.asarray(outputs, dtype=np.float64), _checked_targets(targets)
    if outputs.ndim != 2 or len(outputs) != len(targets):
        raise AnedlError(
            f"probabilities must be (N, K) with N = {len(targets)} targets, got {outputs.shape}"
        )
    if np.isnan(outputs).any():
        raise AnedlError("some probabilities are NaN; check the model's outputs")
    if len(targets) and targets.max() >= outputs.shape[1]:
        raise AnedlError(
            f"target {targets.max()} is beyond the {outputs.shape[1]} classes of the model; "
            f"an outlier is written −1"
        )
    inlier = targets != OUTLIER
    if not inlier.any():
        raise AnedlError("the set has no inliers to measure classification on; add some")
    return outputs[inlier], targets[inlier]


def _inlier_probabilities(probabilities: Array, targets: Array) -> tuple[FloatArray, Array]:
    """As `_inlier_outputs`, refused when the rows are no probabilities."""
    known, known_targets = _inlier_outputs(probabilities, targets)
    # Loose enough for a softmax in half precision, tight enough to catch logits.
    sums = known.sum(axis=1)
    if known.min() < 0.0 or known.max() > 1.01 or np.abs(sums - 1.0).max() > 0.01:
        raise AnedlError(
            "these rows are no probabilities (negative, or not summing to 1); apply a softmax first"
        )
    return known, known_targets
