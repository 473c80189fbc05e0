"""Decisions survive crashes, other writers and any amount of changing one's mind."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anedl.errors import DataError
from anedl.review.decisions import DecisionLog, Entry, Tally, read_labels, tally


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.jsonl"


def verdicts(log):
    found = {name: log.refresh().current(name) for name in log.replay.files()}
    return {name: entry.label or entry.do for name, entry in found.items() if entry}


def test_what_was_decided_is_read_back(path):
    log = DecisionLog(path)
    log.decide(["a", "b"], "label", "cat", key="t:1")
    log.decide(["b"], "unknown", key="t:2")
    log.decide(["c"], "skip", key="t:3")
    assert verdicts(log) == verdicts(DecisionLog(path)) == {"a": "cat", "b": "unknown", "c": "skip"}
    assert read_labels(path) == {"a": "cat", "b": "unknown"}


def test_what_the_fit_took_over_is_counted_apart(path):
    log = DecisionLog(path)
    log.decide(["a", "b", "c"], "label", "cat", key="before:0")
    log.decide(["d", "gone"], "unknown", key="before:unknown")
    assert tally(log.replay, "abcdef") == Tally(0, 0, 0, before=4)
    log.decide(["b"], "label", "dog", key="t:1")  # decided anew
    log.decide(["c"], "skip", key="t:2")
    log.decide(["e", "f"], "unknown", key="t:3")
    assert tally(log.replay, "abcdef") == Tally(1, 2, 1, before=2)


def test_the_file_has_the_documented_form(path):
    log = DecisionLog(path)
    log.decide(["a\u2028ü"], "label", "cät", key="t:1")
    log.undo("t:2")
    first, second = map(json.loads, path.read_text().splitlines())
    assert {**first, "time": ""} == {
        "id": 1, "time": "", "key": "t:1", "do": "label", "files": ["a\u2028ü"], "label": "cät",
    }  # fmt: skip
    assert {**second, "time": ""} == {
        "id": 2, "time": "", "key": "t:2", "do": "undo", "decision": 1,
    }  # fmt: skip


def test_undo_has_no_limit_and_redo_puts_back(path):
    log = DecisionLog(path)
    for i in range(30):
        log.decide(["a"], "label", f"class {i}", key=f"t:{i}")
    for i in reversed(range(29)):
        log.undo(f"t:u{i}")
        assert verdicts(log) == {"a": f"class {i}"}
    log.undo("t:last")
    assert verdicts(log) == {}
    assert log.undo("t:none") is None
    log.undo("t:r1", again=True)
    log.undo("t:r2", again=True)
    assert verdicts(DecisionLog(path)) == {"a": "class 1"}
    log.decide(["b"], "skip", key="t:new")
    assert log.undo("t:r3", again=True) is None  # a new decision ends the redoing


def test_undo_takes_back_the_own_tabs_decision_and_leaves_the_others(path):
    one, two = DecisionLog(path), DecisionLog(path)
    one.decide(["a"], "label", "cat", key="one:1")
    two.decide(["a", "b"], "label", "dog", key="two:1")
    one.undo("one:2")
    assert verdicts(one) == verdicts(two) == {"a": "dog", "b": "dog"}
    two.undo("two:2")
    assert verdicts(one) == {}
    one.decide(["c"], "skip", key="one:3")
    assert two.undo("new:1").decision == 5  # a new tab takes back what is last


def test_a_request_repeated_because_no_answer_came_is_written_once(path):
    log = DecisionLog(path)
    first = log.decide(["a"], "unknown", key="t:1")
    assert DecisionLog(path).decide(["a"], "unknown", key="t:1") == first
    undone = log.undo("t:2")
    assert log.undo("t:2") == undone
    assert len(path.read_text().splitlines()) == 2


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_history_agrees_with_a_plain_stack_of_states(tmp_path_factory, data):
    """With one tab, undo and redo are what every editor does: a stack of whole states."""
    log = DecisionLog(tmp_path_factory.mktemp("log") / "decisions.jsonl")
    past, now, future = [], {}, []
    steps = data.draw(st.lists(st.sampled_from(["decide", "undo", "redo"]), max_size=14))
    for number, step in enumerate(steps):
        if step == "decide":
            files = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
            log.decide(files, "label", str(number), key=f"t:{number}")
            past, now, future = [*past, now], now | dict.fromkeys(files, str(number)), []
        elif step == "undo":
            log.undo(f"t:{number}")
            if past:
                past, now, future = past[:-1], past[-1], [*future, now]
        else:
            log.undo(f"t:{number}", again=True)
            if future:
                past, now, future = [*past, now], future[-1], future[:-1]
        assert verdicts(log) == now
    assert verdicts(DecisionLog(log.path)) == now


@pytest.mark.parametrize("kept", [1, 20, -2, -1])
def test_a_last_line_cut_short_loses_nothing_else(path, kept):
    log = DecisionLog(path)
    log.decide(["a"], "label", "cat", key="t:1")
    log.decide(["b"], "label", "dog", key="t:2")
    whole = path.read_bytes()
    second = whole.splitlines(keepends=True)[1]
    path.write_bytes(whole[: len(whole) - len(second)] + second[:kept])
    survives = kept == -1  # only the end of the line is missing
    assert read_labels(path) == {"a": "cat"} | ({"b": "dog"} if survives else {})
    again = DecisionLog(path)
    again.decide(["c"], "unknown", key="t:3")
    expected = {"a": "cat", "c": "unknown"} | ({"b": "dog"} if survives else {})
    assert verdicts(again) == verdicts(DecisionLog(path)) == read_labels(path) == expected
    assert DecisionLog(path).damaged == (0 if survives else 1)


WRITER = """
import sys, time
from pathlib import Path
from anedl.review.decisions import DecisionLog
folder, tab = Path(sys.argv[1]), sys.argv[2]
log = DecisionLog(folder / "decisions.jsonl")
(folder / tab).touch()
while len(list(folder.glob("ready-*"))) < 3:  # all begin at once
    time.sleep(0.001)
for i in range(40):
    log.decide([f"{tab}-{i}", "everyone's"], "label", tab, key=f"{tab}:{i}")
"""


def test_writers_at_the_same_time_lose_nothing(path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path.parent), f"ready-{tab}"])
        for tab in "abc"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    entries = [Entry.from_json(line) for line in path.read_text().splitlines()]
    assert [entry.id for entry in entries] == list(range(1, 121))
    assert len(read_labels(path)) == 121
    assert read_labels(path)["everyone's"] == entries[-1].label


def test_a_line_is_on_the_disk_before_it_is_confirmed(path, monkeypatch):
    synced = []
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(path.read_bytes()), sync(fd)))
    log = DecisionLog(path)
    log.decide(["a"], "unknown", key="t:1")
    assert synced[-1] == path.read_bytes() != b""


def test_a_full_disk_leaves_no_half_line(path, monkeypatch):
    log = DecisionLog(path)
    log.decide(["a"], "unknown", key="t:1")
    before = path.read_bytes()
    write = os.write
    turns = iter([10])

    def full(descriptor, data):
        if (room := next(turns, None)) is None:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:room])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        log.decide(["b"], "unknown", key="t:2")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert log.decide(["b"], "unknown", key="t:2").id == 2


def test_a_file_that_was_taken_away_starts_over(path):
    log = DecisionLog(path)
    log.decide(["a"], "unknown", key="t:1")
    path.unlink()
    assert verdicts(log) == {}
    assert log.decide(["b"], "skip", key="t:2").id == 1


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{}", "null", "\udcff", '{"id": 1, "do": "label", "files": ["a"]}',
        '{"id": 1, "do": "unknown", "files": []}', '{"id": true, "do": "skip", "files": ["a"]}',
        '{"id": 1, "do": "undo", "decision": 9}', '{"id": 1, "do": "shout", "files": ["a"]}',
    ],
)  # fmt: skip
def test_lines_that_are_no_decisions_are_passed_over_and_counted(path, line):
    good = Entry(7, "", "t:1", "unknown", ("a",)).to_json()
    path.write_bytes(os.fsencode(line) + b"\n" + good.encode() + b"\n")
    log = DecisionLog(path)
    assert (log.damaged, verdicts(log)) == (1, {"a": "unknown"})


def test_files_that_cannot_serve_as_labels_are_refused(path):
    with pytest.raises(DataError, match="no such file"):
        read_labels(path)
    path.write_text("file,label\na,b\n")
    with pytest.raises(DataError, match="none of its lines"):
        read_labels(path)
    path.write_text(Entry(1, "", "", "label", ("a",), "unknown").to_json() + "\n")
    with pytest.raises(DataError, match='called "unknown"'):
        read_labels(path)
