"""The tables in words: for a terminal, as Markdown, as a page."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from anedl.ledger.render import render
from anedl.ledger.table import build_ledger

RESULTS = Path("results")
FORMS = ("terminal", "markdown", "html")
HOSTILE = "<script>alert(1)</script>|`x`\x1b[2J"


class Page(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def ledger(a_run, a_published):
    runs = [a_run(seed, error, 90.0) for seed, error in enumerate((26.0, 27.0, 28.0))]
    runs += [a_run(0, 33.0, 85.0, budget="fast", steps=51_200)]
    runs += [a_run(0, 40.0, 70.0, budget="custom", steps=100)]
    runs += [a_run(0, 50.0, 60.0, development=True)]
    published = [a_published(), a_published(setting="cifar10-6/50", error=9.6)]
    return build_ledger(runs, published)


def line_with(text, *words):
    (line,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return line


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_figures_and_differences_stand_in_their_lines(ledger, form):
    text = render(ledger, form, RESULTS)
    ours = line_with(text, "27.0 ± 1.0")
    for cell in ("anedl", "3: 0 1 2", "26.0 ± 1.0", "90.0 ± 0.0", "91.0 ± 0.0", "204,800", "1.0 h",
                 "a GPU"):  # fmt: skip
        assert cell in ours
    full, fast = text.index("Full-length runs"), text.index("Runs of the budget “fast”")
    custom, development = text.index("“custom”"), text.index("Development runs")
    assert full < fast < custom < development
    beside_full = line_with(text[full:fast], "↳")
    for cell in ("26.7 ± 0.2, Δ +0.3", "Δ -0.7", "90.3 ± 0.1, Δ -0.3", "Δ +0.7", "the paper"):
        assert cell in beside_full
    assert "Δ +6.3" in line_with(text[fast:custom], "↳", "26.7 ± 0.2")
    end = text.index("Published, without") if form == "markdown" else text.index("All figures")
    assert "↳" not in text[custom:end]
    assert "Δ" not in text[custom:end]


def test_columns_of_the_terminal_line_up(ledger):
    text = render(ledger, "terminal", RESULTS)
    block = text[text.index("cifar100-55/50") : text.index("Runs of the budget “fast”")]
    header, ours, published = block.splitlines()[1:4]
    for name, cell in (("error, last", "27.0"), ("AUROC, last", "90.0"), ("device", "a GPU")):
        assert header.index(name) == ours.index(cell)
    assert header.index("error, last") == published.index("26.7")
    assert header.index("device") == published.index("the paper")


def test_markdown_rows_have_as_many_cells_as_their_head(ledger, a_run):
    hostile = build_ledger([a_run(method=HOSTILE)], [])
    for text in (render(ledger, "markdown", RESULTS), render(hostile, "markdown", RESULTS)):
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(counts) == 1


def test_what_has_no_full_run_is_listed(ledger):
    assert "9.6 ± 0.2" in line_with(render(ledger, "markdown", RESULTS), "cifar10-6/50")
    assert "9.6 ± 0.2" in line_with(render(ledger, "terminal", RESULTS), "cifar10-6/50")
    assert "cifar10-6/50" in Page(render(ledger, "html", RESULTS)).text


def test_a_terminal_counts_what_has_no_full_run_where_that_is_long(a_published):
    seldom = [a_published(setting=f"setting-{number}") for number in range(20)]
    assert "setting-7 " in render(build_ledger([], seldom), "terminal", RESULTS)
    often = build_ledger([], [*seldom, a_published(setting="cifar10-6/50")])
    text = render(often, "terminal", RESULTS)
    assert "setting-7" not in text
    assert "21 entries" in text
    assert "setting-7 " in render(often, "markdown", RESULTS)


def test_the_page_says_what_the_terminal_says_and_loads_nothing(ledger):
    page = Page(render(ledger, "html", RESULTS))
    for cell in ("27.0 ± 1.0", "26.7 ± 0.2, Δ +0.3", "Full-length runs", "Development runs"):
        assert cell in page.text
    assert not page.addresses
    assert not {"script", "img", "link"} & set(page.tags)
    assert "prefers-color-scheme: dark" in page.text


def test_a_hostile_name_is_only_a_name(a_run, a_published):
    runs = [a_run(method=HOSTILE, device="<img src=x>", options={"<b>": "</td>"}, setting="<i>x")]
    published = [a_published(setting="<i>x", method=HOSTILE, note="<u>", source="<a href=x>")]
    ledger = build_ledger(runs, published)
    page = Page(render(ledger, "html", RESULTS))
    assert not {"script", "img", "b", "i", "u", "a"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.text
    assert "<script" not in render(ledger, "markdown", RESULTS)
    assert "\x1b" not in render(ledger, "terminal", RESULTS)


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_ledger_says_what_to_do(form):
    text = render(build_ledger([], []), form, Path("some/results"))
    assert "anedl ledger --results some/results --add RUN" in text


@pytest.mark.parametrize("form", FORMS)
def test_warnings_are_shown(a_run, form):
    ledger = build_ledger([a_run(), a_run(method="openmatch", split_hash="other")], [])
    assert "different splits" in render(ledger, form, RESULTS)


def test_what_cannot_be_compared_or_read_off_says_so(a_run, a_published):
    picture = a_published(error=None, auroc=None, unavailable=("error", "auroc"), comparable=())
    averaged = a_published(auroc=85.9, auroc_std=0.07, comparable=("error",))
    text = render(build_ledger([a_run()], [picture, averaged]), "terminal", RESULTS)
    assert "85.9 ± 0.07 (not comparable)" in text
    assert "not available" in text


def test_a_long_name_is_told_whole_in_a_terminal(a_run):
    """What tells two ablations apart may stand at the end of their names."""
    options = {f"option_{letter}": "a-rather-long-value" for letter in "abcd"}
    text = render(build_ledger([a_run(0, options=options)], []), "terminal", Path("results"))
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  anedl ("))
    assert "30.0" in lines[first]
    name = lines[first].split("  ")[1]
    for line in lines[first + 1 :]:
        if not line.startswith("    "):
            break
        name += " " + line.strip()
    assert name == f"anedl ({', '.join(f'{key}={value}' for key, value in options.items())})"
    assert max(map(len, lines)) < 200
