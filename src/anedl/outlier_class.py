"""Classifiers with one more class, the last, for outliers."""

from torch import Tensor

from anedl.dirichlet import in_full_precision


@in_full_precision
def known_log_odds(logits: Tensor) -> Tensor:
    """log (1 − P) − log P of the outlier class's probability P, (N,), from (N, K + 1) logits."""
    return logits[:, :-1].logsumexp(-1) - logits[:, -1]
