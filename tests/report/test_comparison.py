import re

import numpy as np
import pytest

from anedl.errors import AnedlError
from anedl.report import write_comparison
from anedl.report.comparison import (
    MEASURES,
    difference_table,
    mean_table,
    read_methods,
    seeds_figure,
)
from anedl.report.page import paragraphs


@pytest.fixture
def two_methods(make_run):
    ours = {"error": (0.05, 0.07, 0.09), "score": (0.90, 0.92, 0.94), "max_softmax": (0.8,) * 3}
    base = {"error": (0.10, 0.10, 0.16), "score": (0.80, 0.81, 0.88), "max_softmax": (0.7,) * 3}
    return {
        name: [
            make_run(
                f"{name}-{seed}", method, seed, error=figures["error"][seed],
                areas={key: figures[key][seed] for key in ("score", "max_softmax")},
            )
            for seed in (2, 0, 1)
        ]
        for name, method, figures in (("ours", "anedl", ours), ("base & co", "supervised", base))
    }  # fmt: skip


def test_means_are_those_by_hand(two_methods):
    methods = read_methods(two_methods)
    # 5, 7, 9: mean 7, deviations −2, 0, 2, so √(8/2) = 2. 10, 10, 16: mean 12, √(24/2) = 3.46.
    assert mean_table(methods) == [
        ("ours", ["0–2", "7.0 ± 2.0", "92.0 ± 2.0", "80.0 ± 0.0"]),
        ("base & co", ["0–2", "12.0 ± 3.5", "83.0 ± 4.4", "70.0 ± 0.0"]),
    ]


def test_differences_are_paired_by_seed(two_methods):
    ((name, cells),) = difference_table(read_methods(two_methods))
    # Areas +10, +11, +6: mean 9, deviation √7; Student's t for 2 degrees of freedom is 4.3027.
    reach = 4.3027 * np.sqrt(7 / 3)
    assert name == "base & co"
    assert cells[0] == "0–2"
    assert cells[1].startswith("-5.0 [")
    assert cells[2] == f"+9.0 [{9 - reach:+.1f}, {9 + reach:+.1f}]"
    assert cells[3] == "+10.0 [+10.0, +10.0]"


def test_dots_are_joined_seed_by_seed(two_methods):
    figure = seeds_figure(read_methods(two_methods))
    assert [axes.get_title() for axes in figure.axes] == [f"{name} (%)" for name in MEASURES]
    *joined, ours, base = [list(one.get_xdata()) for one in figure.axes[0].get_lines()]
    np.testing.assert_allclose(joined, [[5, 10], [7, 10], [9, 16]])
    np.testing.assert_allclose([ours, base], [[5, 7, 9], [10, 10, 16]])
    bars = [bar.get_segments()[0] for bar in figure.axes[0].collections]
    np.testing.assert_allclose([bar[0][0] for bar in bars], [7, 12])


def test_the_page_compares_and_then_shows_one_run(two_methods, tmp_path, blank_pictures):
    path = write_comparison(tmp_path / "demo", two_methods, "A <title>", "First.\n\nSecond & last.")
    source = path.read_text(encoding="utf-8")
    assert path == tmp_path / "demo" / "report.html"
    assert "A &lt;title&gt;" in source
    assert ">First.</p>" in source
    assert ">Second &amp; last.</p>" in source
    for cell in ("7.0 ± 2.0", "12.0 ± 3.5", "92.0 ± 2.0", "base &amp; co"):
        assert cell in source
    assert "One run: ours, seed 0" in source
    assert "cannot be told from one run" not in source  # the others are on the page
    assert len(re.findall(r'<svg class="chart"', source)) == 1 + 7
    # The one run's headline is that of seed 0.
    assert "<b>5.0\N{NO-BREAK SPACE}%</b>" in source


def test_a_text_for_a_terminal_becomes_paragraphs():
    text = "All of\nit.\n  one   is\n        first\n  two   last\nThe rest.\n\nThe end."
    assert paragraphs(text) == [
        ("All of it.", False),
        ("one is first", True),
        ("two last", True),
        ("The rest.", False),
        ("The end.", False),
    ]


def test_one_seed_has_neither_deviation_nor_interval(make_run, tmp_path):
    runs = {
        "ours": [make_run("a", error=0.1)],
        "base": [make_run("b", method="supervised", error=0.3)],
    }
    methods = read_methods(runs)
    assert mean_table(methods)[0][1][1] == "10.0"
    assert difference_table(methods)[0][1][1] == "-20.0"


def test_runs_that_cannot_be_paired_are_refused(make_run):
    zero, one = make_run("zero", seed=0), make_run("one", seed=1)
    other_split = make_run("other", seed=0, fold=3)
    with pytest.raises(AnedlError, match="same seeds for all"):
        read_methods({"a": [zero], "b": [one]})
    with pytest.raises(AnedlError, match="share a seed but not a split"):
        read_methods({"a": [zero], "b": [other_split]})
    with pytest.raises(AnedlError, match="occurs twice"):
        read_methods({"a": [zero, zero]})
    with pytest.raises(AnedlError, match="at least one run"):
        read_methods({"a": []})
