from xml.etree import ElementTree

import numpy as np
from tests.report.own_run import make_own_run

from anedl.report.album import Album
from anedl.report.axis import Axis
from anedl.report.images import open_images
from anedl.report.judged import read_pile
from anedl.report.plane import MOST_POINTS, kinds_of, make_plane, sample
from anedl.report.run_folder import read_run


def test_a_sample_keeps_the_shares_of_the_kinds():
    kinds = ["inlier"] * 8000 + ["outlier"] * 2000 + ["review"] * 3
    chosen = sample(kinds)
    counts = {kind: sum(kinds[i] == kind for i in chosen) for kind in set(kinds)}
    assert len(chosen) == MOST_POINTS
    assert counts["inlier"] / counts["outlier"] == 4 or abs(counts["inlier"] - 287) <= 2
    assert counts["review"] == 1  # a rare kind is not lost
    assert list(sample(["a"] * 5)) == [0, 1, 2, 3, 4]


def test_rounding_loses_no_points():
    kinds = ["inlier"] * 143 + ["review"] * 232 + ["outlier"] * 25
    chosen = [kinds[i] for i in sample(kinds)]
    assert [chosen.count(kind) for kind in ("inlier", "review", "outlier")] == [129, 209, 22]
    rare = ["inlier"] * 1000 + ["review", "outlier"]
    assert len(sample(rare)) == MOST_POINTS


def test_the_legend_counts_the_points_that_are_drawn(own_run, tmp_path):
    pile = read_pile(read_run(own_run.folder))
    counts = [list(pile.state).count(state) for state in ("accept", "review", "unknown")]
    words = [words for _, words in make_plane(pile, Album(None)).key]
    assert words == [
        f"{count} {name}"
        for count, name in zip(counts, ("accepted", "for review", "unknown"), strict=True)
    ]
    large = make_own_run(tmp_path / "large", count=400)
    pile = read_pile(read_run(large.folder))
    plane = make_plane(pile, Album(None))
    classes = [p.attrib["class"] for p in ElementTree.fromstring(plane.picture).findall("path")]
    assert plane.points == len(classes) == MOST_POINTS
    for (_, words), kind in zip(plane.key, ("inlier", "review", "outlier"), strict=True):
        assert words.startswith(
            f"{classes.count(f'point {kind}')} of {kinds_of(pile)[0].count(kind)} "
        )


def test_points_are_placed_and_named_by_what_they_are(own_run):
    run = read_run(own_run.folder)
    pile, album = read_pile(run), Album(open_images(run))
    plane = make_plane(pile, album)
    assert plane.points == 120 == len(album)
    points = ElementTree.fromstring(plane.picture).findall("path")
    places = [
        tuple(map(float, p.attrib["transform"].removeprefix("translate(").strip(")").split()))
        for p in points
    ]
    x, y = np.transpose(places)
    # Farther right is more aleatoric, higher up (a smaller y) more epistemic.
    assert np.corrcoef(x, pile.aleatoric)[0, 1] > 0.9999
    assert np.corrcoef(-y, pile.epistemic)[0, 1] > 0.9999
    for i in (0, 50):
        title = points[i].find("title").text
        assert title.startswith(f"{own_run.names[i]}: ")
        assert f"looks like {run.class_names[pile.predicted[i]]}" in title
        assert points[i].attrib["data-image"] == album.add(pile.keys[i])
    states = [points[i].attrib["class"].split()[1] for i in range(120)]
    assert states == kinds_of(pile)[0]
    assert states.count("outlier") == list(pile.state).count("unknown")


def test_truth_tells_kinds_where_it_is_known(make_run):
    pile = read_pile(read_run(make_run()))
    kinds, words = kinds_of(pile)
    assert [kind == "outlier" for kind in kinds] == list(pile.truth < 0)
    assert words["outlier"] == "outlier, in truth"


def test_a_method_without_uncertainties_has_no_plane(make_run):
    run = read_run(make_run(method="supervised"))
    assert make_plane(read_pile(run), Album(None)) is None


def test_an_axis_counts_evenly_or_by_factors():
    even, factors = Axis(0, 10, 100, 0), Axis(1, 100, 0, 50, logarithmic=True)
    assert [even.place(v) for v in (0, 5, 10)] == [100, 50, 0]
    assert [round(factors.place(v), 9) for v in (1, 10, 100)] == [0, 25, 50]
    for axis in (even, factors):
        for place, label in axis.ticks():
            assert axis.place(float(label)) == place
