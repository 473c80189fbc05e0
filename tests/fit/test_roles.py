"""Where folds calibrate the pile, no labelled image lies hidden in it for nothing."""

import numpy as np
import pytest

from anedl.fit.roles import deal_roles


def dealt(classes, each, folds=None, level=0.05):
    labels = np.concatenate([np.repeat(np.arange(classes), each), np.full(200, classes)])
    names = tuple("abcdefgh"[:classes])
    alone = np.full(len(labels), -1)
    return deal_roles(labels, alone, names, (), level, seed=0, folds=folds)


def sizes(roles):
    return len(roles.labelled), len(roles.validation), len(roles.fresh), len(roles.decoys)


@pytest.mark.parametrize(
    ("classes", "each", "calibrate"),
    [(5, 16, True), (4, 10, False)],
    ids=["to calibrate for new images", "to train"],
)
def test_what_would_lie_hidden_is_used(classes, each, calibrate):
    """Nineteen fresh images certify 5 %: of 80 labelled ones as many are held back, of 40 not."""
    roles = dealt(classes, each)
    train, validate, fresh, decoys = sizes(roles)
    assert roles.folds.value >= 2
    assert decoys == 0
    assert train + validate + fresh == classes * each
    assert (fresh >= 19) == calibrate
    assert np.array_equal(np.sort(np.concatenate([roles.labelled, roles.validation, roles.fresh])),
                          np.arange(classes * each))  # fmt: skip
    places = (roles.partition.labelled, roles.partition.validation, roles.partition.calibration)
    assert [len(part) for part in places] == [train, validate, fresh]


def test_less_is_held_back_than_where_halves_calibrate():
    with_folds, without = (dealt(4, 10, folds=folds) for folds in (2, 0))
    assert sizes(without)[3] > 0
    assert sizes(with_folds)[0] > sizes(without)[0]


def test_many_images_are_hidden_as_before():
    roles = dealt(5, 100)
    assert roles.folds.value == 0
    assert min(sizes(roles)[2:]) >= 19


def test_of_too_many_folds_it_is_said_how_many_would_do():
    (remark,) = dealt(4, 50, folds=11).remarks
    assert "in so many folds" in remark
    assert "take --folds 10 or fewer" in remark
    assert not dealt(4, 50, folds=10).remarks
    # Of nine images not even two folds certify 5 %.
    (remark,) = dealt(1, 9, folds=3).remarks
    assert "--folds" not in remark
