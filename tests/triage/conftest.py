"""A verdict to write, lay out and read, with names as hostile as wished."""

import numpy as np
import pytest

from anedl.triage.verdict import Labelled, Rules, Triage, gather, judge


def make_triage(names, classes=("cat", "dog", "fox"), seed=0) -> Triage:
    """Any names, a random verdict: all states occur from a dozen images on."""
    rng = np.random.default_rng(seed)
    count, width = len(names), len(classes)
    probabilities = rng.dirichlet(np.full(width, 0.15), count)
    group = np.where(np.arange(count) % 7 == 3, 5, -1)
    triage = judge(
        gather(
            names,
            probabilities,
            score=rng.normal(size=count),
            p_value=rng.choice([0.01, 0.3, 0.9], count, p=[0.3, 0.4, 0.3]),
            epistemic=rng.uniform(size=count),
            aleatoric=np.full(count, np.nan),
            duplicate_group=group,
            class_names=classes,
            labelled_in_group={5: [Labelled("=labelled'.jpg", classes[0])]},
        ),
        Rules(level=0.04, confidence=0.8),
    )
    cluster = np.full(count, -1)
    cluster[triage.where("unknown")[::2]] = 3
    return triage.with_clusters(cluster)


@pytest.fixture
def triage_of():
    return make_triage
