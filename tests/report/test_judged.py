import json
from math import inf

import numpy as np
import pytest
from tests.report.own_run import edit_triage, make_own_run

from anedl.conformal import benjamini_hochberg, p_values
from anedl.intake.cache import open_cache
from anedl.report.images import open_images
from anedl.report.judged import read_judged, read_pile
from anedl.report.run_folder import read_run
from anedl.triage.verdict import Rules


def test_an_own_run_is_judged_by_validation_and_fresh_images_at_the_threshold_for_new_ones(own_run):
    run = read_run(own_run.folder)
    judged = read_judged(run)
    assert len(judged.targets) == 3 * 3 + 39
    assert judged.inlier.all()
    assert judged.cut == own_run.fresh[1]  # 5 % of 40
    np.testing.assert_array_equal(np.sort(judged.score[9:]), own_run.fresh)
    places = [place for _, place in judged.keys]
    assert places == [*run.split.validation, *run.split.test]


def test_every_image_of_a_pile_is_shown_under_its_own_name(own_run):
    index = own_run.folder / "cache" / "index.jsonl"
    lines = index.read_text().splitlines()
    twin = json.loads(lines[1])
    twin[1] = own_run.names[7]  # a labelled image bears the name of one of the pile
    lines[1] = json.dumps(twin, separators=(",", ":"))
    index.write_text("\n".join(lines) + "\n")
    run = read_run(own_run.folder)
    pile, images, cache = read_pile(run), open_images(run), open_cache(own_run.folder / "cache")
    rows = {item.name: row for row, item in enumerate(cache.items) if item.label is None}
    assert list(pile.names) == own_run.names
    for i in (0, 7, 119):
        expected = cache.images[rows[own_run.names[i]]]
        np.testing.assert_array_equal(images[pile.keys[i]], expected)
    # Evidence is kept in the order of the pool, which also holds the hidden inliers.
    alpha = run.pool["evidence_predicted"][39:]
    np.testing.assert_allclose(pile.sureness, alpha)


def test_an_image_that_is_gone_has_no_key_and_is_the_least_sure(own_run):
    table = own_run.folder / "triage.csv"
    table.write_text(table.read_text().replace(own_run.names[3], "renamed.png"))
    pile = read_pile(read_run(own_run.folder))
    assert pile.keys[3] is None
    assert pile.sureness[3] == -inf
    assert pile.keys[4] is not None


def test_the_cut_of_the_pile_is_where_its_verdicts_change(own_run):
    pile = read_pile(read_run(own_run.folder))
    assert [state == "unknown" for state in pile.state] == list(pile.score < pile.cut)


def test_the_cut_follows_from_the_flags_where_false_alarms_are_controlled(tmp_path):
    rules = Rules(level=0.2, confidence=0.9, benjamini_hochberg=True)
    own = make_own_run(tmp_path / "own", rules=rules)
    pile = read_pile(read_run(own.folder))
    flagged = benjamini_hochberg(p_values(own.hidden, own.pile_scores), 0.2)
    assert flagged.any()
    np.testing.assert_array_equal(pile.score < pile.cut, flagged)


def test_classes_are_the_models_whatever_a_person_wrote_into_the_table(own_run):
    before = read_pile(read_run(own_run.folder))
    edit_triage(own_run.folder, 2, **{"state": "accept", "class": "my\nnew class"})
    for with_rules in (True, False):
        if not with_rules:  # then the table alone says which classes there are
            (own_run.folder / "triage.json").unlink()
        pile = read_pile(read_run(own_run.folder))
        assert pile.class_of(2) == "my\\x0anew class (new to the model)"
        assert pile.likeness(2) == "called my\\x0anew class (new to the model)"
        assert pile.state[2] == "accept"
        others = np.arange(len(pile)) != 2
        np.testing.assert_array_equal(pile.predicted[others], before.predicted[others])
        assert pile.likeness(3).startswith(f"looks like {before.class_of(3)} (")


def test_too_few_held_out_images_reject_nothing(tmp_path):
    pile = read_pile(read_run(make_own_run(tmp_path / "own", held=9).folder))
    assert pile.cut == -inf
    assert pile.accepted.all()


def test_a_benchmark_is_judged_by_its_test_and_pool(make_run):
    run = read_run(make_run())
    judged, pile = read_judged(run), read_pile(run)
    assert judged.cut == pile.cut == run.results["last"]["thresholds"]["score"]
    error = (judged.predicted != judged.targets)[judged.inlier].mean()
    assert error == pytest.approx(run.results["last"]["test"]["error"])
    assert pile.state is None
    np.testing.assert_array_equal(pile.truth, run.pool["truth"])
