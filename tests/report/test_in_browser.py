"""The report in a real browser: it opens from disk, and what it counts is what Python counts."""

import os

import numpy as np
import pytest
from tests.report.own_run import make_own_run

from anedl.conformal import percent
from anedl.intake.names import shown
from anedl.report import write_report
from anedl.report.judged import read_judged, read_pile
from anedl.report.run_folder import read_run

pytestmark = pytest.mark.browser

ATTACK = '<img src=x onerror="hacked=1"><script>hacked=1</script>\'"</title></script>'
FILES = [
    shown(f"{ATTACK}.png"),
    shown("two\nlines\t.png"),
    shown(os.fsdecode(b"not \xff\xfe utf-8.png")),
    shown("\u202egnp.reversed\u2028.png"),
]
READY = "document.documentElement.classList.contains('js')"
ROWS = "[...document.querySelectorAll('#cut-counts tbody tr')]"
COUNTS = f"{ROWS}.map(r => [...r.cells].slice(1).map(c => c.textContent))"
TEXT = "document.getElementById('{}').textContent"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "a run & its 'name' #1"
    run = make_own_run(folder, classes=(ATTACK, "dog", "fox"), names=FILES)
    write_report(run.folder)
    return run


@pytest.fixture
def tab(browser, own):
    return opened(browser, own.folder)


def opened(browser, folder):
    browser.errors.clear()
    browser.requests.clear()
    tab = browser.open((folder / "report.html").as_uri())
    tab.until(READY)
    return tab


def set_cut(tab, value):
    tab.run(
        f"(() => {{ const n = document.getElementById('cut-number'); n.value = {value!r}; "
        "n.dispatchEvent(new Event('input')); })()"
    )


def expected_counts(groups, cut):
    rows = []
    for scores in groups:
        rejected = int(np.sum(scores < cut))
        share = f"{100 * rejected / len(scores):.1f}"
        rows.append([f"{len(scores) - rejected:,}", f"{rejected:,}", share])
    return rows


def test_it_opens_from_disk_without_an_error_or_a_request(browser, own, make_run):
    folder = make_run()
    write_report(folder)
    for place in (own.folder, folder):
        tab = opened(browser, place)
        # Look at everything once, so that whatever loads late has loaded.
        tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        tab.run("scrollTo(0, document.documentElement.scrollHeight)")
        tab.run("new Promise(done => setTimeout(done, 300))")
        asked = [url for url in browser.requests if not url.startswith("data:image/")]
        assert asked == [(place / "report.html").as_uri()]
        assert browser.errors == []
        assert tab.run("document.querySelectorAll('main .thumb use').length") > 50


def test_the_slider_counts_what_python_counts(tab, own):
    groups = own.pile_scores, own.hidden
    assert tab.run(COUNTS) == expected_counts(groups, own.hidden[1])
    everything = np.concatenate(groups)
    for cut in (*np.quantile(everything, [0.1, 0.5, 0.9]), own.hidden[7], -5.0, 1e6):
        cut = float(f"{cut:.6g}")
        set_cut(tab, cut)
        assert tab.run(COUNTS) == expected_counts(groups, cut)
        below = int(np.sum(own.hidden < cut))
        rejects = bool(np.sum(everything < cut))
        assert tab.run("document.getElementById('cut-promise').hidden") != rejects
        assert tab.run("document.getElementById('cut-harmless').hidden") == rejects
        if rejects:
            assert tab.run(TEXT.format("cut-loss")) == percent((below + 1) / 40)
    tab.click("document.getElementById('cut-reset')")
    assert tab.run(COUNTS) == expected_counts(groups, own.hidden[1])


def test_the_slider_moves_by_keys_and_says_where_it_is(tab, own):
    tab.run("document.getElementById('cut-range').focus()")
    before = float(tab.run("document.getElementById('cut-number').value"))
    tab.press(*["ArrowRight"] * 40)
    after = float(tab.run("document.getElementById('cut-number').value"))
    assert after > before
    assert tab.run(COUNTS) == expected_counts((own.pile_scores, own.hidden), after)
    rejected = int(np.sum(own.pile_scores < after))
    spoken = tab.run("document.getElementById('cut-range').ariaValueText")
    assert spoken.endswith(f"{rejected} below it")
    # The line in the picture stands above the slider's knob.
    place = "document.getElementById('{}').getBoundingClientRect()"
    line = tab.run(f"{place.format('cut-line')}.x")
    box = tab.run(f"{place.format('cut-range')}.toJSON()")
    share = tab.run("document.getElementById('cut-range').value / 1000")
    knob = box["x"] + 8 + share * (box["width"] - 16)
    assert line == pytest.approx(knob, abs=4)


@pytest.mark.parametrize("rank", [0, 9])
def test_the_images_that_change_sides_are_shown_nearest_first(tab, own, rank):
    own_cut, cut = own.hidden[1], float(f"{own.hidden[rank]:.6g}")
    set_cut(tab, cut)
    low, high = sorted((own_cut, cut))
    order = np.argsort(own.pile_scores, kind="stable")
    changed = [i for i in order if low <= own.pile_scores[i] < high]
    words = tab.run(TEXT.format("cut-changes"))
    if not changed:
        assert words == "No image changes sides."
        return
    assert words.startswith(f"{len(changed)} image")
    assert ("now below the cut" in words) == (cut > own_cut)
    nearest = changed[::-1] if cut > own_cut else changed
    tiles = tab.run("[...document.querySelectorAll('#cut-images figure')].map(f => f.title)")
    assert [title.split(": looks like")[0] for title in tiles] == [
        own.names[i] for i in nearest[:24]
    ]


def test_without_a_cut_of_its_own_the_slider_begins_where_nothing_is_lost(browser, tmp_path):
    own = make_own_run(tmp_path / "own", held=9)
    write_report(own.folder)
    tab = opened(browser, own.folder)
    lost = "document.getElementById('cut-harmless').hidden"
    assert not tab.run(lost)
    assert tab.run(TEXT.format("cut-changes")) == "No image is below the cut."
    set_cut(tab, 1e6)
    assert tab.run(lost)
    assert tab.run(TEXT.format("cut-changes")).startswith("Below the cut: 120 images; the 24 shown")
    assert tab.run(TEXT.format("cut-reset")) == "reject nothing"
    tab.click("document.getElementById('cut-reset')")
    assert not tab.run(lost)
    assert browser.errors == []


def test_a_benchmarks_slider_knows_inliers_from_outliers(browser, make_run):
    folder = make_run()
    write_report(folder)
    tab = opened(browser, folder)
    run = read_run(folder)
    pile, judged = read_pile(run), read_judged(run)
    inlier = judged.targets >= 0
    groups = [
        pile.score, pile.score[pile.truth >= 0], pile.score[pile.truth < 0],
        judged.score[inlier], judged.score[~inlier],
    ]  # fmt: skip
    for cut in np.quantile(pile.score, [0.2, 0.8]):
        cut = float(f"{cut:.6g}")
        set_cut(tab, cut)
        assert tab.run(COUNTS) == expected_counts(groups, cut)


def test_a_heading_sorts_by_click_and_by_key(browser, make_run):
    folder = make_run(names=["zebra", "class 10", "class 9", "ape", "bee", "cow"])
    write_report(folder)
    tab = opened(browser, folder)
    head = "document.querySelectorAll('#classes th[scope=col]')[{}]"
    names = "[...document.querySelectorAll('#classes tbody th')].map(c => c.textContent)"
    errors = "[...document.querySelectorAll('#classes tbody tr')].map(r => +r.cells[2].textContent)"
    by_name = ["ape", "bee", "class 9", "class 10", "cow", "zebra"]
    tab.click(f"{head.format(0)}.firstChild")
    assert tab.run(names) == by_name
    assert tab.run(f"{head.format(0)}.ariaSort") == "ascending"
    tab.run(f"{head.format(2)}.firstChild.focus()")
    tab.press("Enter")
    rising = tab.run(errors)
    assert rising == sorted(rising)
    assert rising[0] < rising[-1]
    assert tab.run(f"{head.format(0)}.ariaSort") == "none"
    tab.press("Enter")
    assert tab.run(errors) == rising[::-1]
    assert tab.run(f"{head.format(2)}.ariaSort") == "descending"


def test_hostile_names_stay_text(tab, own, browser):
    set_cut(tab, 1e6)  # the names are written by the script as well
    tab.run("document.querySelectorAll('.plane .point').forEach(p => p.focus())")
    assert tab.run("typeof hacked") == "undefined"
    assert tab.run("document.querySelectorAll('main img, main script, main iframe').length") == 0
    assert tab.run("document.querySelectorAll('body > script').length") == 2
    spoken = set(tab.run("[...document.querySelectorAll('.point')].map(p => p.ariaLabel ?? '')"))
    for name in FILES:
        assert any(text.startswith(f"{name}: ") for text in spoken), name
    assert tab.run("document.querySelector('#classes tbody th').textContent") == ATTACK
    assert browser.errors == []


def test_a_point_shows_its_image_to_pointer_and_keys(tab, own):
    peek = "document.getElementById('peek')"
    points = "document.querySelectorAll('.plane .point')"
    assert tab.run(f"{peek}.hidden")
    # A point that no other hides: the farthest left.
    place = "transform.baseVal[0].matrix.e"
    first = f"[...{points}].sort((a, b) => a.{place} - b.{place})[0]"
    tab.pointer(first)
    tab.until(f"!{peek}.hidden")
    image = tab.run(f"{first}.dataset.image")
    assert tab.run(f"{peek}.querySelector('use').getAttribute('href')") == f"#{image}"
    box = tab.run(f"{peek}.querySelector('use').getBoundingClientRect().toJSON()")
    assert box["width"] > 100  # it is really drawn
    assert tab.run(f"document.getElementById('{image}').tagName") == "image"
    assert tab.run(f"{peek}.textContent") == tab.run(f"{first}.ariaLabel")

    tab.run("document.querySelector('.plane [tabindex=\"0\"]').focus()")
    seen = [tab.run(f"{peek}.textContent")]
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        tab.press(key)
        seen.append(tab.run(f"{peek}.textContent"))
        assert tab.run("document.activeElement.ariaLabel") == seen[-1]
        assert tab.run("document.querySelectorAll('.plane [tabindex=\"0\"]').length") == 1
    assert len(set(seen)) >= 3
    tab.press("Escape")
    assert tab.run(f"{peek}.hidden")


def test_without_script_everything_but_the_controls_is_there(browser, own):
    tab = browser.open("about:blank")
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.go((own.folder / "report.html").as_uri())
    tab.until("document.readyState === 'complete' && !!document.querySelector('footer')")
    assert not tab.run(READY)
    assert tab.run(COUNTS) == expected_counts((own.pile_scores, own.hidden), own.hidden[1])
    assert (
        tab.run("getComputedStyle(document.getElementById('cut-range').parentNode).display")
        == "none"
    )
    assert tab.run("document.querySelectorAll('.gallery .thumb use').length") > 50
    assert tab.run("document.querySelector('.plane .point title').textContent.length") > 20
    assert tab.run("document.querySelectorAll('.chart').length") >= 3


def test_headings_of_the_confusion_matrix_break_between_words_only(browser, tmp_path):
    names = ("bed", "chair", "hamster", "sunflower", "an uncommonly long name", "x" * 40)
    own = make_own_run(tmp_path / "own", classes=names)
    write_report(own.folder)
    tab = opened(browser, own.folder)
    tab.be_a_phone(False)
    headings = "[...document.querySelectorAll('.confusion thead bdi')]"
    lines = tab.run(f"{headings}.map(heading => heading.getClientRects().length)")
    assert lines[:4] == [1, 1, 1, 1]
    assert lines[5] > 1  # what has no end must break somewhere
    assert tab.run("document.documentElement.scrollWidth") <= 390


def test_white_pictures_stand_out_from_a_white_page(tab):
    thumb = "getComputedStyle(document.querySelector('.gallery .thumb'))"
    assert tab.run(f"parseFloat({thumb}.borderTopWidth)") >= 1
    page = tab.run("getComputedStyle(document.body).backgroundColor")
    assert tab.run(f"{thumb}.borderTopColor") != page


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_in_light_and_dark(tab, dark):
    tab.be_a_phone(dark)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    luminance = (
        "getComputedStyle(document.body).{}.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
    )
    ink, paper = (tab.run(luminance.format(name)) for name in ("color", "backgroundColor"))
    assert (ink > paper) == dark
    assert abs(ink - paper) > 500
