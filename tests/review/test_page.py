"""The page in a real browser: it labels, undoes, and loses nothing whatever happens to it."""

import time
from collections import Counter

import numpy as np
import pytest

from anedl.review.decisions import DecisionLog, read_labels
from anedl.triage.table import read_table

pytestmark = pytest.mark.browser

SAVED = "document.getElementById('saved').textContent.includes('all saved')"
FOCUS = "document.querySelector('.tile.focused')?.querySelector('img').src.split('/').pop()"
TILES = "document.querySelectorAll('.tile').length"
SPOKEN = "document.getElementById('spoken').textContent"


def opened(browser, server):
    tab = browser.open(server.url)
    ready(tab)
    return tab


def ready(tab):
    tab.until("document.querySelector('.tile.focused .words')?.textContent")


def labels(server):
    path = server.run / "decisions.jsonl"
    return read_labels(path) if path.exists() else {}


def focused(server, tab):
    return read_table(server.run).evidence.names[int(tab.run(FOCUS))]


def badge(tab, name):
    script = f"[...document.querySelectorAll('.tile')].find(t => t.ariaLabel.startsWith('{name},'))"
    return tab.run(f"{script}?.querySelector('.badge').textContent")


def begin_a_class(tab, name):
    """All of it but Enter."""
    tab.press("n")
    tab.until("document.getElementById('naming').open")
    tab.call("Input.insertText", text=name)


def test_keys_label_call_unknown_skip_agree_and_undo(browser, server):
    tab = opened(browser, server)
    expected, seen = {}, []
    for key, meaning in (("2", "dog"), ("u", "unknown"), ("s", None), ("1", "cat")):
        seen.append(focused(server, tab))
        if meaning:
            expected[seen[-1]] = meaning
        tab.press(key)
    assert len(set(seen)) == 4  # after each decision the next image comes into focus
    seen.append(focused(server, tab))
    guesses = read_table(server.run).evidence
    expected[seen[4]] = guesses.class_of(guesses.names.index(seen[4]))
    tab.press("a")
    tab.until(SAVED)
    assert labels(server) == expected
    assert badge(tab, seen[0]) == "✓ dog"
    assert badge(tab, seen[1]) == "? unknown"
    assert badge(tab, seen[2]) == "– skipped"

    for name in reversed(seen):
        tab.press("z")
        tab.until(f"{SPOKEN}.startsWith('taken back: {name}')")
        expected.pop(name, None)
        assert labels(server) == expected
        assert focused(server, tab) == name
    assert labels(server) == {}
    tab.press("z")
    tab.until(f"{SPOKEN} === 'nothing to undo'")
    tab.press("Z", shift=True)
    tab.until(f"{SPOKEN}.startsWith('put back: {seen[0]}')")
    assert labels(server) == {seen[0]: "dog"}
    assert not browser.errors  # nor has the policy of the page forbidden anything


def test_fifty_images_take_fifty_keys_and_nothing_else(browser, many):
    """From the moment the page is there: no click, no scrolling, no waiting in between."""
    tab = opened(browser, many)
    tab.press(*"12u3" * 12, "1", "u")
    tab.until(SAVED)
    said = labels(many)
    assert len(said) == 50
    assert sorted(Counter(said.values()).items()) == [
        ("cat", 13), ("dog", 12), ("fox", 12), ("unknown", 13),
    ]  # fmt: skip
    assert not browser.errors


@pytest.mark.long
def test_a_pile_of_100_000_images_is_never_in_the_page_at_once(browser, huge):
    tab = opened(browser, huge)
    for state in ("unknown", "accept"):
        tab.run(f"document.querySelector('input[value={state}]').click()")
    tab.until("document.getElementById('about').textContent.includes('100,000 images')", 30)
    assert tab.until(TILES) < 500  # they are drawn a frame after they are counted
    first = tab.until(FOCUS)
    tab.press("End")
    tab.until(f"{FOCUS} !== undefined && {FOCUS} !== '{first}'", 30)
    tab.until("document.querySelector('.tile.focused img')?.complete", 30)
    assert tab.until(TILES) < 500
    tab.press("u")
    tab.until(SAVED, 30)
    assert list(labels(huge).values()) == ["unknown"]
    assert not browser.errors


def test_a_range_is_settled_with_one_key_and_undone_with_one(browser, server):
    tab = opened(browser, server)
    tab.press("ArrowRight")
    tab.press("ArrowRight", "ArrowRight", "ArrowRight", shift=True)
    assert "4 selected" in tab.run("document.getElementById('about').textContent")
    tab.press("x")  # not the last
    tab.press("3")
    tab.until(SAVED)
    assert list(labels(server).values()) == ["fox"] * 3
    assert len((server.run / "decisions.jsonl").read_text().splitlines()) == 1
    tab.press("z")
    tab.until(f"{SPOKEN}.startsWith('taken back')")
    assert labels(server) == {}
    tab.press("a", ctrl=True)
    tab.press("u")
    tab.until(SAVED)
    assert len(labels(server)) == read_table(server.run).counts()["review"]
    tab.until(f"{SPOKEN}.startsWith('All images shown')")


def test_the_mouse_does_what_the_keys_do(browser, server):
    tab = opened(browser, server)
    click = "document.querySelectorAll('.tile')[{}].dispatchEvent(new MouseEvent('click', {}))"
    tab.run(click.format(1, "{bubbles: true}"))
    tab.run(click.format(3, "{bubbles: true, shiftKey: true}"))
    tab.run(click.format(5, "{bubbles: true, ctrlKey: true}"))
    tab.run("[...document.querySelectorAll('#keys button')].find(b => b.title === 'dog').click()")
    tab.until(SAVED)
    assert list(labels(server).values()) == ["dog"] * 4


def test_a_new_class_is_made_from_a_cluster(browser, server):
    tab = opened(browser, server)
    tab.run(
        "const s = document.forms.filters.elements.cluster; s.value = '1'; "
        "s.dispatchEvent(new Event('change', {bubbles: true})); document.activeElement.blur()"
    )
    tab.until("document.getElementById('about').textContent.startsWith('6 images')")
    begin_a_class(tab, "newt")
    assert "becomes a new class" in tab.run("document.getElementById('naming-note').textContent")
    tab.press("Enter")
    tab.until(SAVED)
    triage = read_table(server.run)
    cluster = np.array(triage.evidence.names)[triage.cluster == 1]
    assert labels(server) == dict.fromkeys(cluster.tolist(), "newt")
    tab.until("[...document.querySelectorAll('#keys button')].some(b => b.title === 'newt')")


def test_a_new_class_without_a_cluster_or_a_selection_is_of_the_image_in_focus(browser, server):
    tab = opened(browser, server)
    name = focused(server, tab)
    begin_a_class(tab, "newt")
    tab.press("Enter")
    tab.until(SAVED)
    assert labels(server) == {name: "newt"}


def test_the_row_after_the_focus_stays_in_sight(browser, many):
    tab = opened(browser, many)
    below = (
        "(() => { const tile = document.querySelector('.tile.focused').getBoundingClientRect();"
        "const grid = document.getElementById('grid').getBoundingClientRect();"
        "return (grid.bottom - tile.bottom) / tile.height; })()"
    )
    tab.press(*["ArrowDown"] * 5)
    tab.until(f"{below} > 0.95")


def test_what_can_never_be_saved_is_told_and_taken_away_again(browser, server):
    tab = opened(browser, server)
    name = focused(server, tab)
    begin_a_class(tab, "Unknown")
    tab.press("Enter")
    tab.until("document.getElementById('trouble').textContent.includes('press u for images')")
    tab.until("![...document.querySelectorAll('.badge')].some(b => b.textContent)")
    assert badge(tab, name) == ""
    assert labels(server) == {}
    assert tab.run("[...document.querySelectorAll('#keys button')].map(b => b.title)")[:4] == [
        "cat", "dog", "fox", "by name …",
    ]  # fmt: skip
    browser.errors.clear()


def test_a_reload_shows_what_was_decided(browser, server):
    tab = opened(browser, server)
    name = focused(server, tab)
    tab.press("2")
    tab.until(SAVED)
    tab.reload()
    ready(tab)
    assert focused(server, tab) != name
    assert "1 of" in tab.run("document.getElementById('progress-text').textContent")
    tab.press("z")  # the history is the file's, not the page's
    tab.until(f"{SPOKEN}.startsWith('taken back')")
    assert labels(server) == {}


def test_a_killed_server_loses_nothing_and_the_page_goes_on(browser, run_folder, start):
    server = start(run_folder)
    tab = opened(browser, server)
    tab.press("1", "2")
    tab.until(SAVED)
    before = labels(server)
    assert len(before) == 2
    server.kill()
    tab.press("3", "u")
    tab.until("document.getElementById('trouble').textContent.includes('2 decisions are kept')")
    assert labels(server) == before
    again = start(server.run)
    tab.until(SAVED, 15)
    after = labels(again)
    assert sorted(after.values()) == ["cat", "dog", "fox", "unknown"]
    assert before.items() <= after.items()
    tab.until("document.getElementById('trouble').hidden")


def test_a_tab_closed_while_the_server_is_away_loses_nothing(browser, run_folder, start):
    server = start(run_folder)
    tab = opened(browser, server)
    server.kill()
    tab.press("3", "u")
    tab.until("document.getElementById('trouble').textContent.includes('2 decisions are kept')")
    tab.call("Page.close")
    again = start(server.run)
    tab = opened(browser, again)
    tab.until(SAVED)
    assert sorted(labels(again).values()) == ["fox", "unknown"]
    browser.errors.clear()


def test_a_tab_closed_right_after_a_key_loses_nothing(browser, server):
    tab = opened(browser, server)
    tab.press("1", "2", "3", "u")
    tab.call("Page.close")
    for _ in range(200):
        if len(labels(server)) == 4:
            break
        time.sleep(0.05)
    assert sorted(labels(server).values()) == ["cat", "dog", "fox", "unknown"]


def test_two_tabs_see_and_keep_each_others_decisions(browser, server):
    one, two = opened(browser, server), opened(browser, server)
    first = focused(server, one)
    one.press("1")
    one.until(SAVED)
    two.press("ArrowRight")
    second = focused(server, two)
    two.press("u")
    two.until(SAVED)
    assert labels(server) == {first: "cat", second: "unknown"}
    # An answer brings what the other has decided; a tab that does nothing asks now and then.
    assert badge(two, first) == "✓ cat"
    one.call("Page.bringToFront")
    for _ in range(200):
        if badge(one, second) == "? unknown":
            break
        time.sleep(0.05)
    assert badge(one, second) == "? unknown"
    one.press("z")
    one.until(f"{SPOKEN}.startsWith('taken back: {first}')")
    assert labels(server) == {second: "unknown"}


def test_a_wrong_token_shows_nothing_of_the_run(browser, server):
    tab = browser.open(server.url.replace(server.token, "x" * len(server.token)))
    tab.until("document.body?.textContent.includes('lacks the right token')")
    browser.errors.clear()


def test_a_foreign_page_neither_decides_nor_looks(browser, server, shared):
    """A page of another origin that even knows the address."""
    other = shared
    tab = opened(browser, other)
    pile = server.json("state")["pile"]
    body = f'{{"pile": "{pile}", "at": [1], "do": "skip", "key": "k:1", "seen": 0}}'
    ask = "fetch('{}{}', {}).then(() => 'answered', () => 'refused')"
    post = f"{{method: 'POST', mode: 'no-cors', body: '{body}'}}"
    tab.call("Page.setBypassCSP", enabled=True)  # the foreign page has no policy of ours
    tab.reload()
    ready(tab)
    tab.run(ask.format(server.url, "decide", post))
    assert tab.run(ask.format(server.url, "state", "{}")) == "refused"
    picture = (
        "new Promise(done => {{ const i = new Image(); i.onload = () => done('seen'); "
        "i.onerror = () => done('refused'); i.src = '{}thumb/x/1'; }})"
    )
    assert tab.run(picture.format(server.url)) == "refused"
    assert tab.run(picture.format(other.url)) == "seen"
    assert labels(server) == {}
    assert not (server.run / "decisions.jsonl").exists()
    browser.errors.clear()


def test_only_the_visible_tiles_exist_and_the_end_is_as_near_as_the_start(browser, server):
    tab = opened(browser, server)
    tab.run("document.getElementById('grid').style.maxHeight = '250px'")
    tab.run("[...document.querySelectorAll('[name=state]')].forEach(b => b.checked = true)")
    tab.run(
        "document.forms.filters.elements.order.value = 'file'; "
        "document.forms.filters.dispatchEvent(new Event('change'))"
    )
    tab.until("document.getElementById('about').textContent.startsWith('60 images')")
    tab.press("End")
    tab.until("document.querySelector('.tile.focused')?.id === 'tile-59'")
    tab.until("!document.getElementById('tile-0')")
    assert tab.run("document.querySelectorAll('.tile').length") < 50
    tab.until("document.querySelector('.tile.focused .words').textContent")
    assert tab.run("document.getElementById('file').textContent") == "059.png"


def test_another_programs_decisions_appear_by_themselves(browser, server):
    tab = opened(browser, server)
    name = focused(server, tab)
    tab.call("Page.bringToFront")
    DecisionLog(server.run / "decisions.jsonl").decide([name], "label", "newt", key="p:1")
    tab.until("document.querySelector('.tile.focused .badge').textContent === '✓ newt'")
