import warnings

import pytest
from matplotlib.text import Text

from anedl.report.canvas import new_figure
from anedl.report.letters import saved

SCRIPT_G = "\N{SCRIPT SMALL G}"  # which matplotlib's text font has not, and its STIX fonts have


def labelled(*names):
    figure = new_figure(3, 3)
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), names, parse_math=False)
    return figure


def test_a_letter_is_borrowed_from_a_font_that_has_it():
    figure = labelled("plain", f"a {SCRIPT_G}")
    content, missing = saved(figure, format="png")
    assert content.startswith(b"\x89PNG")
    assert missing == ""
    families = {text.get_text(): text.get_fontfamily() for text in figure.findobj(Text)}
    assert len(families[f"a {SCRIPT_G}"]) > len(families["plain"])
    # It is the letter that is drawn, and no longer the box in its place.
    assert content != saved(labelled("plain", "a \U0010fffd"), format="png")[0]


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_what_no_font_has_is_returned_and_not_warned_of(kind):
    assert saved(labelled("\U0010fffd", f"{SCRIPT_G}\U0010fffd"), format=kind)[1] == "\U0010fffd"


def test_other_warnings_are_passed_on(monkeypatch):
    figure = labelled("plain")
    monkeypatch.setattr(figure, "savefig", lambda *_, **__: warnings.warn("odd", stacklevel=1))
    with pytest.warns(UserWarning, match="odd"):
        assert saved(figure) == (b"", "")
