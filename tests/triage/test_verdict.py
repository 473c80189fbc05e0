"""Each rule of the verdict, on images made to meet it."""

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from anedl.errors import ConfigError, DataError
from anedl.triage.verdict import Labelled, Rules, gather, judge, percent, with_answers


def evidence_of(probabilities, p_value, groups=None, labelled=None, names=None, classes=None):
    count = len(p_value)
    return gather(
        names or [f"{i}.jpg" for i in range(count)],
        probabilities,
        score=np.linspace(-1, 1, count),
        p_value=p_value,
        epistemic=np.zeros(count),
        aleatoric=np.full(count, np.nan),
        duplicate_group=[-1] * count if groups is None else groups,
        class_names=classes or ("cat", "dog", "fox"),
        labelled_in_group=labelled,
    )


def verdict(probabilities, p_value, rules=None, **more):
    triage = judge(evidence_of([probabilities], [p_value], **more), rules or Rules())
    return triage.state[0], triage.reason[0]


def test_accept():
    state, reason = verdict([0.97, 0.02, 0.01], 0.63)
    assert state == "accept"
    assert reason == (
        "looks like cat (97 %), more typical of the known classes than 63 % of held-out images"
    )


def test_unknown_however_sure_the_class():
    state, reason = verdict([0.99, 0.01, 0.0], 0.008)
    assert state == "unknown"
    assert reason == "unknown: at most 0.8 % of held-out known images look less known"


@pytest.mark.parametrize(("p_value", "state"), [(0.05, "unknown"), (0.0501, "accept")])
def test_the_level_itself_is_unknown(p_value, state):
    assert verdict([0.97, 0.02, 0.01], p_value)[0] == state


@pytest.mark.parametrize(("probability", "state"), [(0.95, "accept"), (0.9499, "review")])
def test_the_confidence_itself_is_accepted(probability, state):
    assert verdict([probability, 1 - probability, 0.0], 0.5)[0] == state


def test_review_names_both_classes():
    assert verdict([0.52, 0.07, 0.41], 0.5) == ("review", "review: cat 52 % or fox 41 %")


def test_review_of_a_single_doubt():
    state, reason = verdict([0.9, 0.05, 0.05], 0.5)
    assert state == "review"
    assert reason == "review: cat 90 %, accepted from 95 % on"


def test_a_twin_with_another_label_goes_to_review():
    labelled = {4: [Labelled("a/1.jpg", "cat"), Labelled("b/2.jpg", "dog")]}
    state, reason = verdict([0.97, 0.02, 0.01], 0.5, groups=[4], labelled=labelled)
    assert state == "review"
    assert reason == (
        "review: near-duplicate of b/2.jpg, which is labelled dog, but this looks like cat (97 %)"
    )


def test_a_twin_that_agrees_changes_nothing():
    labelled = {4: [Labelled("a/1.jpg", "cat")]}
    assert verdict([0.97, 0.02, 0.01], 0.5, groups=[4], labelled=labelled)[0] == "accept"


def test_a_twin_of_a_labelled_image_is_not_unknown():
    labelled = {4: [Labelled("a/1.jpg", "cat")]}
    state, reason = verdict([0.97, 0.02, 0.01], 0.001, groups=[4], labelled=labelled)
    assert state == "review"
    assert "labelled cat, but at most 0.1 % of held-out" in reason


def test_a_group_without_a_labelled_image_changes_nothing():
    labelled = {4: [Labelled("b/2.jpg", "dog")]}
    assert verdict([0.97, 0.02, 0.01], 0.5, groups=[5], labelled=labelled)[0] == "accept"


def test_one_class_only():
    evidence = evidence_of([[1.0], [1.0]], [0.5, 0.01], classes=("cat",))
    assert judge(evidence, Rules()).state == ("accept", "unknown")


def test_no_image_at_all():
    triage = judge(evidence_of(np.empty((0, 3)), []), Rules(benjamini_hochberg=True))
    assert triage.counts() == {"accept": 0, "review": 0, "unknown": 0}


def test_benjamini_hochberg_decides_who_is_unknown():
    p_value = [0.001, 0.04, 0.045, 0.5, 0.6, 0.7]
    evidence = evidence_of([[0.97, 0.02, 0.01]] * 6, p_value)
    assert judge(evidence, Rules()).counts()["unknown"] == 3
    controlled = judge(evidence, Rules(benjamini_hochberg=True))
    adjusted = false_discovery_control(p_value)
    assert [state == "unknown" for state in controlled.state] == list(adjusted <= 0.05)
    assert controlled.state == ("unknown", *["accept"] * 5)
    assert list(controlled.where("accept")) == [1, 2, 3, 4, 5]


def test_reasons_are_one_line():
    labelled = {0: [Labelled("evil\n\r\x1b[31m.jpg", "do\ng")]}
    for p_value, groups in ((0.5, [-1]), (0.5, [0]), (0.01, [0])):
        _, reason = verdict(
            [0.97, 0.02, 0.01], p_value, groups=groups, labelled=labelled,
            classes=("c\nat", "dog", "fox"),
        )  # fmt: skip
        assert reason.isprintable()


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"), (0.00001, "under 0.01 %"), (0.0005, "0.05 %"), (0.008, "0.8 %"),
        (0.05, "5 %"), (0.0999, "10 %"), (0.41, "41 %"), (0.952, "95 %"), (0.994, "99.4 %"),
        (0.99999, "over 99.9 %"), (1.0, "100 %"),
    ],
)  # fmt: skip
def test_percent(share, text):
    assert percent(share) == text


def test_wrong_evidence_is_refused():
    with pytest.raises(DataError, match=r"not a finite number.*'0\.jpg'"):
        evidence_of([[np.nan, 0, 0]], [0.5])
    with pytest.raises(DataError, match=r"need probabilities \(1, 3\), got \(1, 2\)"):
        evidence_of([[0.5, 0.5]], [0.5])
    with pytest.raises(DataError, match="duplicate_group"):
        evidence_of([[1, 0, 0]], [0.5], groups=[1, 2])
    with pytest.raises(DataError, match="escape the odd bytes"):
        evidence_of([[1, 0, 0]], [0.5], names=["\udcff.jpg"])
    with pytest.raises(DataError, match="must differ"):
        evidence_of([[1, 0]], [0.5], classes=("cat", "cat"))
    with pytest.raises(ConfigError, match="level of a triage"):
        Rules(level=5)


def test_what_a_person_said_stands():
    """Against the probabilities, against the p-value, and against a labelled near-duplicate."""
    table = [[0.9, 0.08, 0.02], [0.2, 0.7, 0.1], [0.99, 0.01, 0.0], [0.6, 0.4, 0.0]]
    twins = {0: [Labelled("old.jpg", "fox")]}
    plain = evidence_of(table, [0.5, 0.001, 0.9, 0.5], groups=[0, -1, -1, -1], labelled=twins)
    answers = {0: "dog", 1: "dog", 2: None}
    evidence = with_answers(plain, table, answers)
    triage = judge(evidence, Rules(), answers)
    assert triage.state == ("accept", "accept", "unknown", "review")
    assert triage.reason[:3] == (
        "a person said dog; looks like cat (90 %)",
        "a person said dog",
        "unknown: a person said so",
    )
    assert [evidence.class_of(i) for i in range(4)] == ["dog", "dog", "cat", "cat"]
    assert evidence.probability.tolist() == [0.08, 0.7, 0.99, 0.6]
    assert evidence.second_probability[0] == 0.9
    assert evidence.twin[0] is None
    assert judge(plain, Rules()).state[0] == "review"


def test_false_alarms_are_counted_among_the_images_nobody_answered():
    """Of 20 images 10 are strange; the ordinary ones that were answered must not dilute them."""
    p_value = np.r_[np.full(10, 0.01), np.linspace(0.3, 1, 90)]
    evidence = evidence_of(np.tile([0.99, 0.01, 0.0], (100, 1)), p_value)
    rules = Rules(level=0.05, benjamini_hochberg=True)
    answers = dict.fromkeys(range(20, 100), "cat")
    assert judge(evidence, rules).counts()["unknown"] == 0
    assert judge(evidence, rules, answers).state[:10] == ("unknown",) * 10


def test_folds_and_false_alarms_do_not_go_together():
    with pytest.raises(ConfigError, match="--folds 0"):
        Rules(benjamini_hochberg=True, folds=3)


@pytest.mark.parametrize(("p_value", "state"), [(0.5, "review"), (0.01, "unknown")])
def test_what_looks_like_an_image_called_unknown_is_not_accepted(p_value, state):
    twins = {0: [Labelled("odd.jpg", ""), Labelled("old.jpg", "cat")]}
    found = verdict([0.97, 0.02, 0.01], p_value, groups=[0], labelled=twins)
    assert found[0] == state
    assert "near-duplicate of odd.jpg, which a person called unknown" in found[1]
