"""What a run's held-out inliers promise for new images and for the pile."""

import json
from math import inf

import numpy as np
import pytest
from scipy import stats

from anedl.calibration import Calibration
from anedl.conformal import conditional_interval
from anedl.errors import AnedlError


def test_the_pile_is_judged_by_what_training_has_seen():
    """Seen inliers score lower here: fresh calibration rejects too many of them, decoys do not."""
    generator = np.random.default_rng(3)
    calibration = Calibration(generator.normal(size=400), generator.normal(-1, size=400), 0.1)
    pile = generator.normal(-1, size=20_000)
    rate = {of: (pile < calibration.threshold(of).value).mean() for of in ("pile", "new")}
    assert rate["new"] > 0.3
    low, high = conditional_interval(400, 0.1, 0.999)
    assert low - 0.01 < rate["pile"] < high + 0.01
    assert ((calibration.p_values(pile, "pile") <= 0.1) == (
        pile < calibration.threshold("pile").value)).all()  # fmt: skip
    comparison = calibration.comparison
    assert comparison.differ
    assert comparison.low < rate["new"] - 0.1 < comparison.high
    assert "judged by the 400 inliers hidden among them" in calibration.describe()


def test_without_decoys_the_description_warns():
    calibration = Calibration(np.arange(60.0), np.array([]), 0.05)
    assert calibration.comparison is None
    assert calibration.threshold("pile") == calibration.threshold("new")
    assert "none were hidden in the pile" in calibration.describe()


def test_description_says_what_is_promised():
    text = Calibration(np.arange(60.0), np.arange(20.0), 0.04).describe()
    low, high = stats.beta.ppf([0.05, 0.95], 2, 59)
    assert "new images: a score below 1 is rejected" in text
    assert f"at most {200 / 61:.1f} % of true inliers" in text
    assert f"between {100 * low:.2g} % and {100 * high:.1f} %" in text
    assert "nothing is rejected, for 20 held-out images cannot certify 4 %" in text


def test_json_round_trip():
    calibration = Calibration(np.array([3.5, 1.25, 2.0]), np.array([0.1]), 0.25)
    again = Calibration.from_json(json.loads(json.dumps(calibration.to_json())))
    assert again.to_json() == calibration.to_json()
    assert again.fresh.tolist() == [1.25, 2.0, 3.5]
    with pytest.raises(AnedlError, match="calibrate the run again"):
        Calibration.from_json({"fresh": [1.0]})


FAMILIAR = Calibration(
    np.array([5.0, 1.0, 3.0, 4.0, 2.0]), np.array([]), 0.4, np.array([-5.0, -1.0, -3.0, -2.0, -4.0])
)


def test_new_images_are_judged_by_score_and_familiarity():
    """Set aside: the score 1, the familiarity −5 (whose score is 5), then the scores 2, 3, 4."""
    scores = np.array([0.5, 1.5, 4.5, 9.0, 9.0, 9.0])
    familiarity = np.array([0.0, 0.0, 0.0, -5.5, -4.5, 0.0])
    found = FAMILIAR.p_values(scores, "new", familiarity)
    assert (6 * found).round(9).tolist() == [1, 3, 6, 2, 6, 6]
    limit = FAMILIAR.threshold("new")
    assert (limit.value, limit.familiarity, limit.certified) == (1.0, -5.0, 2 / 6)
    assert "a score below 1, or a familiarity below -5, is rejected" in FAMILIAR.describe()


def test_the_pile_is_judged_by_its_score_alone():
    """Training has seen it; the same where no decoys were hidden in it."""
    scores = np.array([0.5, 1.5, 4.5])
    assert (6 * FAMILIAR.p_values(scores, "pile")).round(9).tolist() == [1, 2, 5]
    limit = FAMILIAR.threshold("pile")
    assert (limit.value, limit.familiarity) == (2.0, -inf)


def test_too_few_images_for_the_level_reject_nothing_by_familiarity_either():
    few = Calibration(np.arange(5.0), np.zeros(0), 0.05, -np.arange(5.0))
    limit = few.threshold("new")
    assert (limit.value, limit.familiarity, limit.certified) == (-inf, -inf, 0.0)
    enough_for_one = Calibration(np.arange(19.0), np.zeros(0), 0.05, -np.arange(19.0))
    limit = enough_for_one.threshold("new")
    assert (limit.value, limit.familiarity) == (0.0, -inf)
    assert "familiarity" in enough_for_one.describe()
    assert "at levels from 10 % on" in enough_for_one.describe()


def test_familiarities_stay_with_their_images():
    again = Calibration.from_json(json.loads(json.dumps(FAMILIAR.to_json())))
    assert again.fresh.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert again.familiar.tolist() == [-1.0, -4.0, -3.0, -2.0, -5.0]
    without = Calibration(FAMILIAR.fresh, FAMILIAR.seen, FAMILIAR.level)
    assert "familiar" not in without.to_json()
    assert without.threshold("new").familiarity == -inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FAMILIAR.p_values(np.ones(2), "new"), "by their familiarity too"),
        (lambda: FAMILIAR.p_values(np.ones(2), "new", np.array([0, np.nan])), "not numbers"),
        (lambda: FAMILIAR.p_values(np.ones(2), "old", np.ones(2)), "'old'"),
        (lambda: Calibration(np.ones(3), np.ones(3), 0.1, np.ones(2)), "that of each"),
        (lambda: Calibration(np.ones(3), np.ones(3), 0.1).p_values(np.ones(1), "old"), "'old'"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(AnedlError, match=message):
        call()
