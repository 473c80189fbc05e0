"""The examples of docs/python.md, run one after the other."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture(scope="module")
def names():
    """What the examples define."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    found: dict = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        exec(compile(example, str(PAGE), "exec"), found)
    torch.set_num_threads(before)
    return found


def test_the_classifier_of_the_page_tells_digits_apart(names):
    classifier, fresh, truth = names["classifier"], names["fresh"], names["truth"][1200:]
    known = truth < 6
    assert classifier.score(fresh, np.where(known, truth, -1)) > 0.75
    rejected = classifier.predict(fresh) == -1
    assert rejected[~known].mean() > rejected[known].mean()
    assert classifier.predict_proba(fresh).shape == (597, 6)
    assert classifier.transduction_.shape == (1200,)
    assert len(classifier.calibration_scores_) >= 19  # as the page says, for 150 labels


def test_the_rest_of_the_page_does_what_it_says(names):
    fresh = names["fresh"]
    assert (names["again"].predict(fresh) == names["classifier"].predict(fresh)).all()
    assert ((names["aurocs"] >= 0) & (names["aurocs"] <= 1)).all()  # nan is neither
    assert names["search"].best_params_["opensetclassifier__selection_share"] in (0.3, 0.6)
