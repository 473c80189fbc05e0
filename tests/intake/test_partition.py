import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anedl.errors import ConfigError, DataError
from anedl.intake.partition import deal_folds, partition

NAMES = ("ant", "bee", "cat")
shares = st.sampled_from([0.0, 0.1, 0.25, 0.4])


@st.composite
def problems(draw):
    """Labels and groups; some groups mix labels."""
    count = draw(st.integers(1, 80))
    labels = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    alone = st.just(-1)
    group = st.one_of(alone, alone, alone, st.integers(0, 30))
    groups = draw(st.lists(group, min_size=count, max_size=count))
    return np.array(labels), np.array(groups)


def distinct(labels, groups, label):
    """Different images of a class, those of mixed groups left out."""
    seen = set()
    for place, (own, group) in enumerate(zip(labels, groups, strict=True)):
        mixed = group >= 0 and set(labels[groups == group]) != {label}
        if own == label and not mixed:
            seen.add(("group", group) if group >= 0 else ("alone", place))
    return len(seen)


@given(problems(), shares, shares, st.integers(0, 3), st.integers(1, 6))
def test_roles_are_disjoint_and_fair(problem, validation, calibration, seed, minimum):
    labels, groups = problem
    needed = max(minimum, 1 + (validation > 0) + (calibration > 0))
    short = [n for n in range(3) if distinct(labels, groups, n) < needed]
    arguments = (labels, groups, validation, calibration, seed, minimum, NAMES)
    if short:
        with pytest.raises(DataError) as caught:
            partition(*arguments)
        for label in short:
            found = f"class {NAMES[label]!r} has {distinct(labels, groups, label)}"
            assert found in str(caught.value)
        assert f"at least {needed} different images" in str(caught.value)
        return

    roles = partition(*arguments)
    parts = (roles.labelled, roles.validation, roles.calibration)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for group in set(groups.tolist()) - {-1}:
        members = set(np.flatnonzero(groups == group).tolist())
        touched = [part for part in parts if members & set(part.tolist())]
        assert len(touched) == 1
        if len(set(labels[groups == group])) > 1:
            assert touched[0] is roles.labelled
    largest = max([1, *(int((groups == g).sum()) for g in set(groups.tolist()) - {-1})])
    for label in range(3):
        total = int((labels == label).sum())
        assert (labels[roles.labelled] == label).any()
        for part, share in ((roles.validation, validation), (roles.calibration, calibration)):
            held = int((labels[part] == label).sum())
            assert (held > 0) == (share > 0)
            assert held <= max(round(share * total), largest)
    again = partition(*arguments)
    for one, other in zip(
        parts, (again.labelled, again.validation, again.calibration), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_shares_are_met_exactly_without_duplicates():
    labels = np.repeat([0, 1], [40, 200])
    roles = partition(labels, np.full(240, -1), 0.2, 0.1, 5, 3)
    for part, counts in (
        (roles.labelled, [28, 140]),
        (roles.validation, [8, 40]),
        (roles.calibration, [4, 20]),
    ):
        assert np.bincount(labels[part]).tolist() == counts


def test_another_seed_is_another_partition():
    labels = np.zeros(100, np.int64)
    found = {tuple(partition(labels, labels - 1, 0.3, 0.3, s, 1).validation) for s in range(5)}
    assert len(found) == 5


def test_a_class_depends_on_no_other():
    """More images of one class do not move the images of the classes before it."""
    few = partition(np.repeat([0, 1], 20), np.full(40, -1), 0.2, 0.2, 1, 1)
    many = partition(np.repeat([0, 1], [20, 60]), np.full(80, -1), 0.2, 0.2, 1, 1)
    assert (
        few.validation[few.validation < 20].tolist()
        == many.validation[many.validation < 20].tolist()
    )


def test_refusal_counts_near_duplicates_once():
    labels = np.array([0] * 6 + [1] * 3)
    groups = np.array([0, 0, 0, 0, -1, -1, -1, -1, -1])
    with pytest.raises(DataError) as caught:
        partition(labels, groups, 0.2, 0.2, 0, 5, ["cat", "dog", "emu"])
    assert str(caught.value) == (
        "too few images: class 'cat' has 3 (in 6 files; near-duplicates count once); "
        "class 'dog' has 3; class 'emu' has 0; every class needs at least 5 different images, "
        "so label more or leave the class out"
    )


def test_refusal_says_that_groups_under_several_labels_do_not_count():
    labels, groups = np.array([0] * 4 + [1] * 6), np.array([0, -1, -1, -1, 0, -1, -1, -1, -1, -1])
    with pytest.raises(DataError, match=r"'cat' has 3 \(in 4 files; .* once, and not at all under"):
        partition(labels, groups, 0.2, 0.2, 0, 5, ["cat", "dog"])


@pytest.mark.parametrize("wrong", [(-0.1, 0.2), (0.5, 0.5), (0.2, 1.0)])
def test_shares_must_leave_something(wrong):
    with pytest.raises(ConfigError, match="leave some images to train on"):
        partition(np.zeros(20, np.int64), np.full(20, -1), *wrong, 0, 1)


@given(problems(), st.integers(0, 3), st.data())
def test_images_that_only_train_do_so_with_all_that_is_like_them(problem, seed, data):
    labels, groups = problem
    count = len(labels)
    marked = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    try:
        roles = partition(labels, groups, 0.2, 0.3, seed, 3, NAMES, marked)
    except DataError:
        return
    alike = marked | (np.isin(groups, groups[marked]) & (groups >= 0))
    assert set(np.flatnonzero(alike).tolist()) <= set(roles.labelled.tolist())
    parts = (roles.labelled, roles.validation, roles.calibration)
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))


def test_shares_are_of_the_images_that_may_judge():
    """A class that people made gives nothing; the others give what they gave without it."""
    labels = np.repeat([0, 1, 2], [20, 20, 9])
    alone = np.full(49, -1)
    roles = partition(labels, alone, 0.2, 0.3, 0, 5, NAMES, labels == 2)
    plain = partition(labels[:40], alone[:40], 0.2, 0.3, 0, 5, NAMES[:2])
    assert roles.validation.tolist() == plain.validation.tolist()
    assert roles.calibration.tolist() == plain.calibration.tolist()


@given(problems(), st.integers(2, 5), st.integers(0, 3))
def test_folds_are_even_and_keep_copies_together(problem, folds, seed):
    labels, groups = problem
    marked = np.arange(len(labels)) % 7 == 0
    fold = deal_folds(labels, groups, folds, seed, marked)
    assert set(fold.tolist()) <= set(range(-1, folds))
    assert (fold[marked] == -1).all()
    for group in set(groups.tolist()) - {-1}:
        assert len(set(fold[groups == group].tolist())) == 1
        if len(set(labels[groups == group])) > 1:
            assert (fold[groups == group] == -1).all()
    assert (fold[~marked & (groups < 0)] >= 0).all()
    largest = max([1, *(int((groups == g).sum()) for g in set(groups.tolist()) - {-1})])
    for label in range(3):
        sizes = np.bincount(fold[(labels == label) & (fold >= 0)], minlength=folds)
        assert sizes.max() - sizes.min() <= largest
