"""What is averaged with what, and what stands beside it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from anedl.ledger.table import build_ledger


def groups_of(runs, published=()):
    return [group for table in build_ledger(runs, published).tables for group in table.groups]


def test_mean_and_deviation_are_numpys(a_run):
    errors, areas = [26.5, 27.1, 26.9], [90.0, 89.2, 91.5]
    runs = [a_run(seed, e, a) for seed, (e, a) in enumerate(zip(errors, areas, strict=True))]
    (group,) = groups_of(reversed(runs))
    assert group.seeds == [0, 1, 2]
    assert group.error("last") == pytest.approx((np.mean(errors), np.std(errors, ddof=1)))
    assert group.auroc("last") == pytest.approx((np.mean(areas), np.std(areas, ddof=1)))
    best = np.array(errors) - 1
    assert group.error("best_val") == pytest.approx((best.mean(), best.std(ddof=1)))
    assert group.auroc("last", "self_training")[0] == pytest.approx(np.mean(areas) - 5)
    assert group.wall[0] == pytest.approx(3601.0)


def test_one_run_has_no_deviation_and_a_group_with_gaps_no_figure(a_run):
    (alone,) = groups_of([a_run()])
    assert alone.error("last") == (30.0, None)
    (gappy,) = groups_of([a_run(0), a_run(1, best=False)])
    assert gappy.error("last") == (30.0, 0.0)
    assert gappy.error("best_val") is None
    assert gappy.auroc("last", "no such score") is None


KINDS = {
    "setting": ["cifar100-55/50", "cifar100-80/50"],
    "budget": ["full", "fast", "custom"],
    "development": [False, True],
    "pool_limit": [None, 500],
    "method": ["anedl", "openmatch"],
    "options": [{}, {"adaptive": False}],
    "steps": [204_800, 51_200],
}


def test_nothing_that_differs_by_more_than_the_seed_is_mixed(a_run):
    kinds = [dict(zip(KINDS, values, strict=True)) for values in itertools.product(*KINDS.values())]
    runs = [a_run(seed, **kind) for kind in kinds for seed in (0, 1)]
    tables = build_ledger(runs, []).tables
    assert len({(t.budget, t.development) for t in tables}) == len(tables) == 6
    groups = [group for table in tables for group in table.groups]
    assert len(groups) == len(kinds)
    for table in tables:
        for group in table.groups:
            assert group.seeds == [0, 1]
            assert {run.budget for run in group.runs} == {table.budget}
            assert {run.development for run in group.runs} == {table.development}
            for name in KINDS:
                assert len({repr(getattr(run, name)) for run in group.runs}) == 1


def test_a_changed_default_is_another_recipe(a_run):
    """Both call themselves plain, but a default changed between them."""
    runs = [a_run(0, recipe_hash="a" * 64), a_run(1, recipe_hash="b" * 64)]
    groups = groups_of(runs)
    assert [group.seeds for group in groups] == [[0], [1]]
    assert [group.label for group in groups] == [
        "anedl (recipe aaaaaaaa)",
        "anedl (recipe bbbbbbbb)",
    ]


def test_two_versions_of_a_users_file_are_told_by_their_hashes(a_run):
    runs = [
        a_run(method="mine.py:Mine", recipe_hash=letter * 64, config_hash=letter, method_sha256=sha)
        for letter, sha in (("a", "1234567890"), ("b", "fedcba9876"))
    ]
    labels = [group.label for group in groups_of(runs)]
    assert labels == ["mine.py:Mine (file 12345678)", "mine.py:Mine (file fedcba98)"]
    same_file = [replace(run, method_sha256="1234567890") for run in runs]
    labels = [group.label for group in groups_of(same_file)]
    assert labels == ["mine.py:Mine (recipe aaaaaaaa)", "mine.py:Mine (recipe bbbbbbbb)"]


def test_draws_by_another_rule_stand_apart(a_run):
    """CIFAR draws anew for each seed, ImageNet-30 keeps one draw for all."""
    own = [a_run(seed) for seed in (0, 1, 2)]
    same_fold = [a_run(seed, fold=3) for seed in (1, 2)]
    assert [group.seeds for group in groups_of(own + same_fold)] == [[0, 1, 2], [1, 2]]
    one_draw = [a_run(seed, setting="imagenet30-20/130", fold=0) for seed in (0, 1, 2)]
    assert [group.seeds for group in groups_of(one_draw)] == [[0, 1, 2]]
    other_counts = [a_run(seed, setting="imagenet30-10/50", fold=0) for seed in (0, 1, 2)]
    assert [group.seeds for group in groups_of(other_counts)] == [[0, 1, 2]]


def test_a_study_on_one_fold_keeps_the_seed_whose_own_fold_that_is(a_run):
    """Seeds 0, 1 and 2 on fold 0: that seed 0 would have drawn it anyway does not put it out."""
    study = [a_run(seed, error=30.0 + seed, fold=0) for seed in (0, 1, 2)]
    other = a_run(0, error=99.0, fold=0, options={"negative": False})
    groups = groups_of([*study, other])
    assert [(group.label, group.seeds) for group in groups] == [
        ("anedl", [0]),
        ("anedl (all on fold 0)", [0, 1, 2]),
        ("anedl (negative=False)", [0]),
    ]
    assert groups[1].error("last").mean == pytest.approx(31.0)


def test_only_full_and_fast_test_runs_stand_beside_published_numbers(a_run, a_published):
    runs = [
        a_run(seed, error=27.7, auroc=89.3, budget=budget, development=development)
        for budget in ("full", "fast", "custom")
        for development in (False, True)
        for seed in (0, 1)
    ]
    ledger = build_ledger(runs, [a_published()])
    compared = {
        (table.budget, table.development)
        for table in ledger.tables
        if any(group.beside for group in table.groups)
    }
    assert compared == {("full", False), ("fast", False)}
    assert [(table.budget, table.development) for table in ledger.tables[:3]] == [
        ("full", False), ("fast", False), ("custom", False),
    ]  # fmt: skip
    (beside,) = ledger.tables[0].groups[0].beside
    assert beside.differences == pytest.approx(
        {("error", "last"): 1.0, ("error", "best_val"): 0.0,
         ("auroc", "last"): -1.0, ("auroc", "best_val"): 0.0}
    )  # fmt: skip
    assert not ledger.missing


def test_a_number_counts_as_reached_by_a_full_run_only(a_run, a_published):
    published = [a_published(), a_published(setting="cifar10-6/50")]
    assert build_ledger([a_run(budget="fast")], published).missing == tuple(published)
    assert build_ledger([a_run(pool_limit=500)], published).missing == tuple(published)
    assert build_ledger([a_run()], published).missing == (published[1],)


def test_an_ablation_stands_beside_its_own_number(a_run, a_published):
    without = a_published(variant="without", options={"debias": False}, auroc=90.0)
    published = [a_published(), without]
    ledger = build_ledger(
        [a_run(), a_run(options={"debias": False}), a_run(options={"debias_tau": 2.0})], published
    )
    found = {
        tuple(group.options.items()): [beside.published for beside in group.beside]
        for group in ledger.tables[0].groups
    }
    assert found == {
        (): [published[0]], (("debias", False),): [without], (("debias_tau", 2.0),): [],
    }  # fmt: skip


def test_options_that_change_nothing_learnt_do_not_hide_the_published(a_run, a_published):
    options = {"precision": "fp32", "log_every": 128}
    (group,) = groups_of([a_run(options=options)], [a_published()])
    assert len(group.beside) == 1


def test_equal_numbers_stand_once_and_contradicting_ones_all(a_run, a_published):
    published = [
        a_published(),
        a_published(what="ablation-kl"),
        a_published(what="user-report", error=7.4),
    ]
    (group,) = groups_of([a_run()], published)
    assert [[item.what for item in beside.same] for beside in group.beside] == [
        ["tables-1-2", "ablation-kl"], ["user-report"],
    ]  # fmt: skip


def test_what_cannot_be_compared_has_no_difference(a_run, a_published):
    (group,) = groups_of([a_run()], [a_published(comparable=("error",))])
    assert {measure for measure, _ in group.beside[0].differences} == {"error"}
    (group,) = groups_of([a_run()], [a_published(auroc=None, auroc_std=None)])
    assert {measure for measure, _ in group.beside[0].differences} == {"error"}


def test_the_released_variant_is_compared_with_the_published_method(a_run, a_published):
    (group,) = groups_of([a_run(method="anedl-released")], [a_published()])
    assert len(group.beside) == 1


def test_a_number_by_another_score_is_compared_with_that_score(a_run, a_published):
    (group,) = groups_of([a_run(auroc=90.0)], [a_published(score="self_training", auroc=88.4)])
    assert group.beside[0].differences["auroc", "last"] == pytest.approx(85.0 - 88.4)


def test_runs_on_different_splits_are_pointed_out(a_run):
    ledger = build_ledger([a_run(), a_run(method="openmatch", split_hash="other")], [])
    (warning,) = ledger.warnings
    assert "cifar100-55/50, fold 0" in warning
    assert not build_ledger([a_run(), a_run(method="openmatch")], []).warnings
