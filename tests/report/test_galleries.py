from dataclasses import replace

import numpy as np
from tests.report.own_run import decide

from anedl.report.album import Album
from anedl.report.class_table import class_table
from anedl.report.galleries import (
    LOOSE_IMAGES,
    MISTAKES,
    Shelf,
    doubtful,
    make_galleries,
    number_writer,
    strangest,
    surest,
)
from anedl.report.images import open_images
from anedl.report.judged import read_judged, read_pile
from anedl.report.run_folder import read_run
from anedl.triage.table import read_table, write_table

CLUSTERS = "Clusters of the unknown"


def galleries_of(folder):
    run = read_run(folder)
    pile, judged, album = read_pile(run), read_judged(run), Album(open_images(run))
    made = make_galleries(run, pile, judged, album)
    return run, pile, judged, album, {gallery.title: gallery for gallery in made}


def names(strip):
    return [tile.name for tile in strip.tiles]


def test_an_own_run_shows_its_pile_from_every_side(own_run):
    _, pile, _, _, galleries = galleries_of(own_run.folder)
    strange = [own_run.names[i] for i in np.argsort(own_run.pile_scores, kind="stable")]
    (strip,) = galleries["The most unknown"].strips
    assert names(strip) == strange[:LOOSE_IMAGES]
    (strip,) = galleries["The most doubtful"].strips
    accepted = np.flatnonzero(pile.score >= pile.cut)
    doubtful = accepted[np.argsort(pile.probability[accepted], kind="stable")]
    assert names(strip) == [own_run.names[i] for i in doubtful[:LOOSE_IMAGES]]
    surest = galleries["The surest of each class"].strips
    assert [strip.label for strip in surest] == list(own_run.classes)
    for label, strip in enumerate(surest):
        best = [i for i in np.argsort(-pile.sureness, kind="stable") if pile.predicted[i] == label]
        assert names(strip) == [own_run.names[i] for i in best[:10]]


def test_an_image_that_no_one_is_known_to_be_sure_of_is_not_among_the_surest(own_run):
    run, pile, judged, album, _ = galleries_of(own_run.folder)
    of_class = np.flatnonzero(pile.predicted == 0)
    sureness = pile.sureness.copy()
    sureness[of_class[2:]] = -np.inf
    shelf = Shelf(run, replace(pile, sureness=sureness), judged, album)
    assert {*names(surest(shelf).strips[0])} == {own_run.names[i] for i in of_class[:2]}


def test_what_a_person_has_decided_is_not_asked_again(own_run):
    *_, galleries = galleries_of(own_run.folder)
    loose = ("The most doubtful", "The most unknown")
    doubtful, strange = (names(galleries[title].strips[0]) for title in loose)
    assert not any("decided" in galleries[title].caption for title in loose)
    settled = doubtful[:5] + strange[:5]
    places = [own_run.names.index(name) for name in settled]
    decide(own_run, labelled=places[:5], unknown=places[5:])
    *_, galleries = galleries_of(own_run.folder)
    for title, before in zip(loose, (doubtful, strange), strict=True):
        now = names(galleries[title].strips[0])
        assert now[0] == next(name for name in before if name not in settled)
        assert set(now).isdisjoint(settled)
        assert "that a person has decided about are left out" in galleries[title].caption


def test_of_near_duplicates_one_is_shown(own_run):
    run, pile, judged, album, galleries = galleries_of(own_run.folder)
    for make, title in ((doubtful, "The most doubtful"), (strangest, "The most unknown")):
        before = names(galleries[title].strips[0])
        assert "near-duplicates" not in galleries[title].caption
        group = np.full(len(pile), -1)
        for copies, number in ((before[:3], 0), (before[4:6], 7)):
            group[[own_run.names.index(name) for name in copies]] = number
        gallery = make(Shelf(run, replace(pile, group=group), judged, album))
        now = names(gallery.strips[0])
        left_out = {*before[1:3], before[5]}
        assert now[: len(before) - 3] == [name for name in before if name not in left_out]
        assert len(now) == len(before)  # others take their places
        assert "Of near-duplicates only the first is shown." in gallery.caption


def test_clusters_of_the_unknown_are_shown_by_size(own_run):
    _, pile, _, _, galleries = galleries_of(own_run.folder)
    strips = galleries["Clusters of the unknown"].strips
    sizes = [np.sum(pile.cluster == number) for number in (1, 2)]
    assert {strip.label for strip in strips} == {
        f"{size} alike (cluster {number})" for number, size in zip((1, 2), sizes, strict=True)
    }
    assert strips[0].label.startswith(str(max(sizes)))
    for strip in strips:
        assert {pile.cluster[own_run.names.index(name)] for name in names(strip)} == {
            int(strip.label.rstrip(")").split()[-1])
        }


def test_a_cluster_of_nearly_all_unknown_is_not_called_a_new_class(own_run):
    assert "perhaps a new class" in galleries_of(own_run.folder)[-1][CLUSTERS].caption
    triage = read_table(own_run.folder)
    cluster = np.full(len(triage), -1)
    cluster[triage.where("unknown")] = 1
    write_table(own_run.folder, triage.with_clusters(cluster))
    gallery = galleries_of(own_run.folder)[-1][CLUSTERS]
    assert "could not tell them apart" in gallery.caption
    assert "new class" not in gallery.caption
    assert [strip.label for strip in gallery.strips] == [
        f"{len(triage.where('unknown'))} not told apart (cluster 1)"
    ]


def test_clusters_say_when_they_rest_on_what_people_said(own_run):
    _, pile, *_, galleries = galleries_of(own_run.folder)
    assert "a person" not in galleries[CLUSTERS].caption
    members = np.flatnonzero(pile.cluster >= 0)
    for some, said in ((members[:3], "3"), (members, "All")):
        decide(own_run, labelled=[], unknown=some)
        assert (
            f"{said} of these {len(members)} images are here because a person called them unknown"
            in galleries_of(own_run.folder)[-1][CLUSTERS].caption
        )


def test_the_worst_mistakes_are_those_that_were_surest(make_run):
    run, _, judged, _, galleries = galleries_of(make_run())
    strips = {strip.label: strip.tiles for strip in galleries["The worst mistakes"].strips}
    outlier, accepted = judged.targets < 0, judged.score >= judged.cut
    trusted = np.sort(judged.score[outlier & accepted])[::-1][:MISTAKES]
    write = number_writer(judged.score)
    assert [t.words[-1] for t in strips["outliers trusted most"]] == [write(s) for s in trusted]
    assert all(tile.words[0] == "outlier" for tile in strips["outliers trusted most"])
    turned_away = judged.score[~outlier & ~accepted]
    shown = [float(tile.words[-1]) for tile in strips["known, and turned away"]]
    assert shown == [float(write(s)) for s in np.sort(turned_away)[:MISTAKES]]
    for tile in strips["known, taken for another class"]:
        truth, answer = tile.words[:2]
        assert answer.removeprefix("→ ") in run.class_names
        assert truth != answer.removeprefix("→ ")


def test_truth_frames_the_pool_where_it_is_known(make_run):
    _, pile, _, _, galleries = galleries_of(make_run())
    (strip,) = galleries["The most unknown"].strips
    order = np.argsort(pile.score, kind="stable")
    right = np.where(pile.truth == pile.predicted, "right", "wrong")
    expected = list(np.where(pile.truth < 0, "outlier", right)[order[:LOOSE_IMAGES]])
    assert [tile.truth for tile in strip.tiles] == expected
    assert "outlier" in expected


def test_classes_are_counted_as_sklearn_does(make_run):
    from sklearn.metrics import precision_score, recall_score

    run = read_run(make_run())
    pile, judged = read_pile(run), read_judged(run)
    table = class_table(run, pile, judged)
    truth = np.where(judged.targets < 0, 6, judged.targets)
    answer = np.where(judged.score >= judged.cut, judged.predicted, 6)
    values = np.array([[cell.value for cell in cells] for _, cells in table.rows])
    place = {name: column for column, name in enumerate(table.columns)}
    known = judged.targets >= 0
    expected = {
        "found (%)": recall_score(truth, answer, labels=range(6), average=None),
        "precision (%)": precision_score(truth, answer, labels=range(6), average=None),
        "error (%)": 1
        - recall_score(truth[known], judged.predicted[known], labels=range(6), average=None),
    }
    for column, shares in expected.items():
        np.testing.assert_allclose(values[:, place[column]], 100 * shares)
    assert values[:, place["test images"]].sum() == known.sum()
    assert values[:, place["pool: not turned away"]].sum() == pile.accepted.sum()
    assert values[:, place["pool: in truth"]].sum() == (pile.truth >= 0).sum()


def test_an_own_runs_verdicts_are_counted_by_class(own_run):
    run = read_run(own_run.folder)
    pile = read_pile(run)
    table = class_table(run, pile, read_judged(run))
    assert table.columns[-3:] == ["pile: accepted", "pile: review", "pile: unknown"]
    for label, (_, cells) in enumerate(table.rows):
        states = [state for state, c in zip(pile.state, pile.predicted, strict=True) if c == label]
        assert [cell.value for cell in cells[-3:]] == [
            states.count(state) for state in ("accept", "review", "unknown")
        ]


def test_numbers_below_images_share_their_places():
    assert number_writer(np.array([0.5, 0.25]))(0.256) == "0.26"
    assert number_writer(np.array([3.0, 42.0]))(3.14159) == "3.1"
    assert number_writer(np.array([3.0, 4200.0]))(3141.59) == "3142"
    assert number_writer(np.array([3.0, -np.inf]))(3.14159) == "3.14"
    assert number_writer(np.array([3.0, -2.0]))(-2.0) == "\N{MINUS SIGN}2.00"
    assert number_writer(np.array([3.0, -2.0]))(-0.001) == "0.00"
