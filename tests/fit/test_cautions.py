"""What a fit warns of."""

import numpy as np
import pytest

from anedl.fit.cautions import (
    HeldOut,
    cautions,
    perhaps_no_strangers,
    seldom_found,
    thresholds_disagree,
    uncounted_classes,
)
from anedl.pollution import estimate_outlier_share
from anedl.triage.verdict import Rules, gather, judge


def triage_with(counts, unknown=()):
    """As many images as `counts` says of each class, then some `unknown` ones of these classes."""
    first = np.array([k for k, n in enumerate(counts) for _ in range(n)] + list(unknown), int)
    size = len(first)
    probabilities = np.full((size, len(counts)), 0.01)
    probabilities[np.arange(size), first] = 1 - 0.01 * (len(counts) - 1)
    p_value = np.ones(size)
    p_value[sum(counts) :] = 0.001
    nothing = np.full(size, np.nan)
    evidence = gather(
        [f"{n}.png" for n in range(size)], probabilities, np.zeros(size), p_value, nothing,
        nothing, np.full(size, -1), [f"class{k}" for k in range(len(counts))],
    )  # fmt: skip
    return judge(evidence, Rules())


def test_a_class_that_is_hardly_found_is_named():
    # An even share is 40 images, a tenth of it 4.
    assert seldom_found(triage_with([76, 40, 4])) == []
    (said,) = seldom_found(triage_with([80, 40, 3]))
    assert "taken for 'class2';" in said


def test_images_that_are_called_unknown_do_not_count():
    (said,) = seldom_found(triage_with([40, 40, 0], unknown=[2] * 30))
    assert "'class2'" in said


@pytest.mark.parametrize(("found", "more"), [(5, False), (7, True)])
def test_many_names_do_not_fill_the_screen(found, more):
    (said,) = seldom_found(triage_with([400] * found + [0] * found))
    assert (f"and {found - 5} more" in said) == more


def test_a_pile_of_strangers_names_no_class():
    """Nothing is found of any class: that is told elsewhere."""
    assert seldom_found(triage_with([0, 0, 0], unknown=[0, 1, 2])) == []


def held_out(*classes):
    """Held-out images by class: how many, and how many of them are taken for the next class."""
    truth = np.repeat(np.arange(len(classes)), [count for count, _ in classes])
    wrong = np.array([n < bad for count, bad in classes for n in range(count)])
    return HeldOut(truth, np.where(wrong, (truth + 1) % len(classes), truth))


NAMES = ["fox", "bear", "wolf"]


def test_a_good_model_and_a_long_training_give_no_cause_for_caution():
    assert cautions(held_out((20, 1), (20, 1), (20, 0)), NAMES, 1000) == []


def test_a_poor_model_and_a_short_training_do():
    poor, short = cautions(held_out((20, 6), (20, 6), (20, 6)), NAMES, 12)
    assert "wrong on 30 % of held-out images" in poor
    assert "only 12 steps" in short


def test_a_small_error_does_not_hide_a_class_that_is_never_named():
    """Eighty foxes and two bears: whoever always says fox is wrong on two of 82."""
    guessing, missed = cautions(held_out((80, 0), (2, 2)), NAMES[:2], 1000)
    assert "names 50 % of their held-out images rightly, where guessing names 50 %" in guessing
    assert "always answering 'fox' would be wrong on 2.4 % of all, and the model is on" in guessing
    assert "not one held-out image of 'bear' (2)" in missed
    # Of one image nothing follows.
    assert len(cautions(held_out((40, 0), (40, 0), (1, 1)), NAMES, 1000)) == 0


def says_guessing(held, names):
    return any("hardly better than guessing" in line for line in cautions(held, names, 1000))


def test_a_model_that_guesses_among_many_is_told_from_one_that_has_learnt_something():
    names = [str(k) for k in range(40)]
    assert says_guessing(held_out(*[(2, 2)] * 36, *[(2, 1)] * 4), names)
    assert not says_guessing(held_out(*[(2, 1)] * 40), names)
    # Rare images that are hardly ever found are no skill, however small the error.
    assert says_guessing(held_out((180, 0), (20, 19)), NAMES[:2])


@pytest.mark.parametrize(("common", "rare", "right"), [(3, 3, 0.9), (38, 2, 0.96), (95, 5, 0.96)])
def test_good_models_are_left_in_peace_however_few_the_images(common, rare, right):
    draw = np.random.default_rng(0)
    truth = np.repeat([0, 1], [common, rare])
    said = 0
    for _ in range(200):
        answer = np.where(draw.random(len(truth)) < right, truth, 1 - truth)
        said += says_guessing(HeldOut(truth, answer), NAMES[:2])
    assert said <= 10


def test_images_called_unknown_of_a_pile_that_may_be_clean():
    scores = np.random.default_rng(0).normal(size=400)
    clean = estimate_outlier_share(scores[:100], scores[100:])
    dirty = estimate_outlier_share(scores[:100], np.concatenate([scores[100:], scores - 9]))
    assert clean.low == 0 < dirty.low
    (said,) = perhaps_no_strangers(clean, 15)
    assert "the 15 images called unknown" in said
    (said,) = perhaps_no_strangers(clean, 1)
    assert "the 1 image called unknown may be an odd one of a known class: look at it" in said
    assert perhaps_no_strangers(clean, 0) == perhaps_no_strangers(dirty, 15) == []


def test_thresholds_that_judge_the_same_pile_very_differently():
    (said,) = thresholds_disagree(41, 682, 1528)
    assert "of 1,528 images of the pile 41 are called unknown, and 682 would be" in said
    assert "`anedl predict` will call many more images unknown" in said
    (said,) = thresholds_disagree(300, 0, 1528)
    assert "`anedl predict` will call far fewer images unknown" in said
    # A few of many, and a few more of very many, are no cause.
    assert thresholds_disagree(4, 60, 1528) == thresholds_disagree(800, 1000, 1528) == []
    assert thresholds_disagree(0, 0, 0) == thresholds_disagree(5, 5, 5) == []
    assert thresholds_disagree(300, None, 1528) == [], "new images have no threshold"


def test_classes_without_held_out_images_are_told():
    assert uncounted_classes([]) == []
    (said,) = uncounted_classes(["tower"])
    assert "no held-out image is of 'tower'" in said


def test_a_poor_model_that_began_at_random_is_told_of_trained_features():
    held_out = HeldOut(np.array([0, 1] * 10), np.array([0] * 14 + [0, 1] * 3))
    for trained, told in ((False, True), (True, False)):
        poor = next(c for c in cautions(held_out, ["a", "b"], 1000, trained) if "wrong on" in c)
        assert ("--backbone efficientnet-lite0" in poor) is told
