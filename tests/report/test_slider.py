from base64 import b64decode
from math import inf

import numpy as np
import pytest
from scipy.stats import beta

from anedl.conformal import threshold
from anedl.report.album import Album
from anedl.report.judged import read_judged, read_pile
from anedl.report.run_folder import read_run
from anedl.report.slider import (
    NEAREST,
    Group,
    Loss,
    cut_table,
    make_slider,
    packed,
    payload,
    sample,
)
from anedl.report.slider_picture import shown_groups, slider_axis, slider_picture

RNG = np.random.default_rng(2)


def slider_of(folder):
    run = read_run(folder)
    pile, judged = read_pile(run), read_judged(run)
    return run, pile, judged, make_slider(run, pile, judged)


def test_a_group_rejects_what_lies_below_the_cut_and_not_at_it():
    scores = np.sort(RNG.integers(0, 9, 50) / 2)
    group = Group("some", scores)
    for cut in (-1.0, 0.0, 1.75, 2.0, 4.0, 9.0, -inf):
        assert group.rejected(cut) == sum(score < cut for score in scores)


def test_the_loss_at_a_calibrated_threshold_is_what_it_certifies():
    inliers = np.sort(RNG.normal(size=99))
    loss = Loss(inliers, "some")
    for level in (0.01, 0.05, 0.2):
        limit = threshold(inliers, level)
        assert loss.bound(limit.value) == pytest.approx(limit.certified)
    assert loss.bound(np.nextafter(limit.value, inf)) > limit.certified
    assert loss.bound(inliers[-1] + 1) == 1.0
    assert loss.bound(-inf) == 0.0  # no cut, no loss


def test_the_loss_is_the_rate_at_which_fresh_inliers_fall_below_the_cut():
    lost = []
    for seed in range(4000):
        *held_out, fresh = np.random.default_rng(seed).normal(size=20)
        lost.append(fresh < np.sort(held_out)[1])  # a cut at the second smallest of 19
    bound = Loss(np.sort(held_out), "some").bound(np.sort(held_out)[1])
    assert bound == pytest.approx(2 / 20)
    assert np.mean(lost) == pytest.approx(bound, abs=0.015)


def test_nine_of_ten_is_the_range_of_a_beta():
    low, high = Loss(np.sort(RNG.normal(size=30)), "some").range()
    for below in (0, 4, 29):
        expected = beta(below + 1, 30 - below).ppf([0.05, 0.95])
        np.testing.assert_allclose([low[below], high[below]], expected)
    assert (low[30], high[30]) == (1.0, 1.0)


def test_an_own_run_counts_its_pile_and_the_inliers_hidden_in_it(own_run):
    _, pile, _, slider = slider_of(own_run.folder)
    assert [group.name for group in slider.groups] == [
        "the pile",
        "held-out inliers hidden in the pile",
    ]
    assert slider.cut == np.sort(own_run.hidden)[1]  # 39 hidden: 5 % of 40 is the second
    for group, scores in zip(slider.groups, (own_run.pile_scores, own_run.hidden), strict=True):
        assert group.rejected(slider.cut) == np.sum(scores < slider.cut)
    assert slider.groups[0].rejected(slider.cut) == list(pile.state).count("unknown")
    assert slider.loss.bound(slider.cut) == pytest.approx(2 / 40)


def test_a_benchmark_counts_inliers_and_outliers_of_pool_and_test(make_run):
    run, pile, judged, slider = slider_of(make_run())
    truth, targets = run.pool["truth"], run.test_targets
    cut = run.results["last"]["thresholds"]["score"]
    expected = {
        "the pool": pile.score,
        "the pool's inliers": run.pool["score"][truth >= 0],
        "the pool's outliers": run.pool["score"][truth < 0],
        "the test's inliers": run.test["score"][targets >= 0],
        "the test's outliers": run.test["score"][targets < 0],
    }
    assert {g.name: (len(g.scores), g.rejected(cut)) for g in slider.groups} == {
        name: (len(scores), int(np.sum(scores < cut))) for name, scores in expected.items()
    }
    assert slider.cut == judged.cut == cut
    np.testing.assert_array_equal(slider.loss.inliers, np.sort(run.validation["score"]))


def test_without_held_out_scores_nothing_is_said_of_the_loss(make_run):
    folder = make_run()
    (folder / "outputs" / "validation-last.safetensors").unlink()
    slider = slider_of(folder)[-1]
    assert slider.loss is None
    columns, rows = cut_table(slider)
    assert [name for name, _ in rows] == ["this run"]
    assert len(columns) == len(rows[0][1]) == 1 + len(slider.groups)


def test_the_table_of_cuts_states_what_each_rejects(own_run):
    slider = slider_of(own_run.folder)[-1]
    columns, rows = cut_table(slider)
    cells = dict(rows)
    # 39 hidden inliers certify 1/40 at the finest, so not 1 or 2 %.
    assert list(cells) == ["this run", "at most 5 % lost", "at most 10 % lost", "at most 20 % lost"]
    cut = own_run.hidden[3]  # the fourth: 10 % of 40
    rejected = np.sum(own_run.pile_scores < cut)
    assert cells["at most 10 % lost"] == [
        f"{cut:.4g}", "10 %", f"{rejected} ({100 * rejected / 120:.1f} %)", "3 (7.7 %)",
    ]  # fmt: skip
    assert len(columns) == 4


@pytest.mark.parametrize("values", [np.float32(RNG.normal(size=7)), RNG.normal(size=7)])
def test_packed_numbers_lose_nothing(values):
    text = packed(values.astype(np.float64))
    kind = {"4": "<f4", "8": "<f8"}[text[0]]
    np.testing.assert_array_equal(np.frombuffer(b64decode(text[1:]), kind), values)
    assert (text[0] == "4") == (values.dtype == np.float32)


def test_the_images_at_hand_are_the_nearest_to_the_cut_and_some_everywhere(make_run):
    _, pile, _, slider = slider_of(make_run())
    chosen = sample(pile, slider.cut)
    scores = pile.score[chosen]
    assert list(scores) == sorted(scores)
    assert len(set(chosen)) == len(chosen)
    below = np.sort(pile.score[pile.score < slider.cut])[::-1][:NEAREST]
    above = np.sort(pile.score[pile.score >= slider.cut])[:NEAREST]
    assert set(below) | set(above) <= set(scores)
    assert {pile.score.min(), pile.score.max()} <= set(scores)


def test_without_images_the_page_gets_scores_but_no_names(own_run):
    _, pile, _, slider = slider_of(own_run.folder)
    document = payload(slider, pile, Album(None))
    assert document["shown"] == []
    assert document["cut"] == slider.cut
    assert len(document["groups"]) == 2


def test_the_picture_shows_every_score_and_the_cut_where_it_is(own_run):
    slider = slider_of(own_run.folder)[-1]
    above, below = shown_groups(slider)
    assert (above.name, below.kind) == ("the pile", "inlier")
    axis = slider_axis(slider)
    assert axis.place(slider.low) == 0
    assert axis.place(slider.high) == pytest.approx(820)
    assert f'id="cut-line" class="cut" x1="{axis.place(slider.cut):.2f}"' in slider_picture(slider)
