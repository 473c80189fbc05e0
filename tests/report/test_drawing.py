import re
from xml.etree import ElementTree

import numpy as np

from anedl.report import figures
from anedl.report.canvas import new_figure
from anedl.report.drawing import to_svg

RNG = np.random.default_rng(3)
TARGETS = np.where(RNG.random(100) < 0.4, -1, 1)
SCORE = RNG.normal(np.where(TARGETS < 0, 2.0, 4.0), 1.0)


def roc(name="roc"):
    return to_svg(
        figures.roc_figure({"mine": SCORE}, TARGETS, {"mine": 3.0}), name, "what it shows"
    )


def test_a_drawing_obeys_a_strict_policy_and_the_theme_of_the_page():
    svg = roc()
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "what it shows"
    assert not re.search(r"style|http|<script|font-family", svg)
    colours = set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg))
    assert colours <= {"none"} | {c for c in colours if re.fullmatch(r"var\(--[a-z]+\)", c)}
    assert "var(--first)" in colours
    assert "inliers wrongly rejected (%)" in "".join(root.itertext())  # real text


def test_two_drawings_on_a_page_share_no_inner_name():
    one, two = roc("one"), roc("two")
    names = [set(re.findall(r'id="([^"]+)"', svg)) for svg in (one, two)]
    assert names[0]
    assert not names[0] & names[1]
    for svg, mine in ((one, names[0]), (two, names[1])):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) <= mine


def test_the_same_figure_is_drawn_the_same():
    assert roc() == roc()


def test_hostile_words_stay_text():
    figure = new_figure(3, 3)
    hostile = '</svg><script>alert(1)</script>"'
    figure.subplots().set_title(hostile, parse_math=False)
    root = ElementTree.fromstring(to_svg(figure, "x", hostile))
    assert root.attrib["aria-label"] == hostile
    assert hostile in "".join(root.itertext())
    assert not root.findall(".//script")
