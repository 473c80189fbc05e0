"""The comparison in a real browser: it opens from disk, sorts, and its links lead somewhere."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.report.own_run import make_own_run

from anedl.report.compare import write_compare
from anedl.report.recipes import read_recipes

pytestmark = pytest.mark.browser

ATTACK = "<img src=x onerror='hacked=1'><script>hacked=1<\\script>&\"$_{"
READY = "document.documentElement.classList.contains('js')"
NAMES = "[...document.querySelectorAll('#all-runs tbody th')].map(c => c.textContent)"


@pytest.fixture
def page(make_run, tmp_path):
    folders = [make_run("b 10", seed=0, error=0.05), make_run("b 9", seed=1, error=0.2)]
    folders += [make_run("supervised", "supervised", error=0.1)]
    folders.append(make_own_run(tmp_path / ATTACK).folder)
    for folder in folders[1:]:
        (folder / "report.html").write_text("the report")
    return write_compare(read_recipes(folders), tmp_path / "pages & #1" / "compare.html")


@pytest.fixture
def tab(browser, page):
    browser.errors.clear()
    browser.requests.clear()
    tab = browser.open(page.as_uri())
    tab.until(READY)
    return tab


def test_it_opens_from_disk_and_hostile_names_stay_text(browser, tab, page):
    tab.run("scrollTo(0, document.documentElement.scrollHeight)")
    tab.run("new Promise(done => setTimeout(done, 300))")
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]
    assert browser.errors == []
    assert tab.run("typeof hacked") == "undefined"
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert tab.run("document.querySelectorAll('.chart').length") == 5
    shown = ATTACK  # every character of it can be shown
    for place in ("#splits thead bdi", "#means tbody th", ".lines bdi", ".beside thead bdi"):
        texts = tab.run(f"[...document.querySelectorAll('{place}')].map(e => e.textContent)")
        assert shown in texts, place
    warnings = tab.run("document.querySelector('.warnings').textContent")
    assert "Different settings" in warnings
    assert "Different splits for seed 0: one for " in warnings


def test_it_sorts_and_its_links_lead_to_reports(tab, make_run):
    assert tab.run(NAMES) == ["b 10", "b 9", "supervised", ATTACK]
    for click, order in enumerate((["b 10", "supervised", "b 9"], ["b 9", "supervised", "b 10"])):
        tab.click("document.querySelectorAll('#all-runs thead th')[3].firstChild")
        assert [name for name in tab.run(NAMES) if name != ATTACK] == order, click
    links = tab.run("[...document.querySelectorAll('#all-runs a')].map(a => a.href)")
    assert len(links) == 3
    for link in links:
        parts = urlsplit(link)
        assert parts.scheme == "file"
        assert Path(unquote(parts.path)).read_text() == "the report"


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_in_light_and_dark(tab, dark):
    tab.be_a_phone(dark)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    # Every recipe is drawn in its own colour or dash, in the key as in the figures.
    looks = tab.run(
        "[...document.querySelectorAll('#training .lines line')].map(l => "
        "[getComputedStyle(l).stroke, l.getAttribute('stroke-dasharray')].join())"
    )
    assert len(set(looks)) == len(looks) == 3
    curves = tab.run(
        "[...document.querySelectorAll('#figure-curves path')].map(p => getComputedStyle(p).stroke)"
    )
    assert {look.rpartition("),")[0] + ")" for look in looks} <= set(curves)
