"""The order shows what is most worth a look first, and never many of a kind in a row."""

from dataclasses import replace

import numpy as np
import pytest

from anedl.review.queue import order_by_worth, random_order, uncertainty
from anedl.triage.verdict import Labelled, Rules, gather, judge


def triage_of(probabilities, p_value, epistemic=None, group=None, cluster=None, labelled=None):
    count, classes = np.shape(probabilities)
    triage = judge(
        gather(
            [f"{i}.png" for i in range(count)],
            probabilities,
            score=np.zeros(count),
            p_value=p_value,
            epistemic=np.full(count, np.nan) if epistemic is None else epistemic,
            aleatoric=np.full(count, np.nan),
            duplicate_group=np.full(count, -1) if group is None else group,
            class_names=[f"c{k}" for k in range(classes)],
            labelled_in_group=labelled,
        ),
        Rules(level=0.05, confidence=0.9),
    )
    return triage if cluster is None else triage.with_clusters(np.asarray(cluster))


def pairs(first):
    """Probabilities of two classes from that of the first."""
    return np.stack([first, 1 - np.asarray(first)], axis=1)


def test_review_comes_first_and_every_image_once():
    rng = np.random.default_rng(1)
    triage = triage_of(rng.dirichlet(np.full(4, 0.3), 500), rng.uniform(0.001, 1, 500))
    order = order_by_worth(triage)
    assert sorted(order) == list(range(500))
    states = np.array(triage.state)[order]
    reviewed = int((states == "review").sum())
    assert 0 < reviewed < 500
    assert (states[:reviewed] == "review").all()


@pytest.mark.parametrize("measure", ["margin", "epistemic", "level"])
def test_each_measure_of_uncertainty_moves_an_image_forward(measure):
    first, p, epistemic = np.full(9, 0.7), np.full(9, 0.5), np.full(9, 0.3)
    if measure == "margin":
        first[4] = 0.51
    elif measure == "epistemic":
        epistemic[4] = 0.9
    else:
        p[4] = 0.06
    triage = triage_of(pairs(first), p, epistemic)
    assert order_by_worth(triage)[0] == 4
    others = np.delete(uncertainty(triage), 4)
    assert (others == others[0]).all()
    assert uncertainty(triage)[4] > others[0]


def test_images_as_uncertain_as_each_other_take_turns():
    """Twelve of one pair of classes, three of another: the three are among the first six."""
    table = np.tile([0.6, 0.4, 0.0], (15, 1))
    table[12:] = [0.0, 0.4, 0.6]
    order = order_by_worth(triage_of(table, np.full(15, 0.5)))
    assert {12, 13, 14} <= set(order[:6].tolist())


def test_clusters_take_turns_among_the_unknown():
    cluster = np.r_[np.full(20, 1), np.full(4, 2), np.full(4, 3)]
    triage = triage_of(pairs(np.full(28, 0.99)), np.full(28, 0.01), cluster=cluster)
    assert len(set(cluster[order_by_worth(triage)[:3]])) == 3


def test_near_duplicates_of_one_another_are_shown_once_before_the_rest():
    first = np.linspace(0.55, 0.85, 12)
    group = np.array([7, 7, 7, 7, *([-1] * 8)])
    order = order_by_worth(triage_of(pairs(first), np.full(12, 0.5), group=group)).tolist()
    assert order[0] == 0  # the most uncertain of the four stands for them
    assert set(order[-3:]) == {1, 2, 3}


def test_a_near_duplicate_of_another_class_is_as_uncertain_as_can_be():
    triage = triage_of(
        pairs(np.r_[np.full(8, 0.6), 0.99]),
        np.full(9, 0.9),
        group=np.array([*([-1] * 8), 2]),
        labelled={2: [Labelled("x.png", "c1")]},
    )
    assert triage.state[8] == "review"
    assert order_by_worth(triage)[0] == 8


def test_an_empty_pile_has_an_order_and_missing_measures_do_no_harm():
    assert len(order_by_worth(triage_of(np.zeros((0, 2)), []))) == 0
    triage = triage_of(pairs([0.9, 0.6]), [0.5, 0.5])
    evidence = replace(triage.evidence, epistemic=np.array([np.nan, 0.2]))
    assert np.isfinite(uncertainty(replace(triage, evidence=evidence))).all()


def test_the_random_order_is_a_permutation_that_stays():
    assert sorted(random_order(50)) == list(range(50))
    np.testing.assert_array_equal(random_order(50), random_order(50))
    assert random_order(50).tolist() != list(range(50))
