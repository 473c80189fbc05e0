"""What a run says while it trains."""

import io
import json
import os
import struct
import sys

import pytest
import torch
from safetensors.torch import load_file

from anedl.engine.log import Display, JsonLines, TensorBoard, clock, open_sinks, read_rows
from anedl.errors import ConfigError


def write_three(path):
    log = JsonLines(path, 0)
    for step in (2, 4, 6):
        log.write(step, {"loss": step / 2, "train": {"ce": 1.0}})
    log.close()


def test_rows_are_lines_of_json_on_disk_at_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = JsonLines(path, 0)
    log.write(2, {"loss": 0.5})
    assert json.loads(path.read_text()) == {"step": 2, "loss": 0.5}
    log.write(4, {"loss": 0.25})
    assert [row["step"] for row in read_rows(path)] == [2, 4]
    log.close()


@pytest.mark.parametrize(("resume_step", "kept"), [(0, []), (2, [2]), (5, [2, 4]), (6, [2, 4, 6])])
def test_resuming_keeps_the_rows_up_to_the_checkpoint(tmp_path, resume_step, kept):
    path = tmp_path / "metrics.jsonl"
    write_three(path)
    log = JsonLines(path, resume_step)
    log.write(8, {"loss": 9.0})
    log.close()
    assert [row["step"] for row in read_rows(path)] == [*kept, 8]


def test_a_line_cut_short_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_three(path)
    path.write_text(path.read_text()[:-9])
    assert [row["step"] for row in read_rows(path)] == [2, 4]
    log = JsonLines(path, 6)
    log.write(6, {"loss": 3.0})
    log.close()
    rows = path.read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [2, 4, 6]


def events_in(folder):
    """(tag, step, value) of every scalar, read with TensorBoard's own classes."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        (tag, event.step): struct.unpack("f", struct.pack("f", event.value))[0]
        for tag in accumulator.Tags()["scalars"]
        for event in accumulator.Scalars(tag)
    }


def test_tensorboard_gets_every_number_and_keeps_the_checkpoints_rows(tmp_path):
    pytest.importorskip("tensorboard")
    first = TensorBoard(tmp_path, 0)
    for step in (2, 4, 6):
        first.write(step, {"loss": step / 2, "train": {"ce": 1.5}, "name": "x", "flag": True})
    first.close()
    assert events_in(tmp_path) == {
        ("loss", 2): 1.0, ("loss", 4): 2.0, ("loss", 6): 3.0,
        ("train/ce", 2): 1.5, ("train/ce", 4): 1.5, ("train/ce", 6): 1.5,
    }  # fmt: skip
    second = TensorBoard(tmp_path, 4)
    second.write(6, {"loss": 7.0})
    second.close()
    assert {k: v for k, v in events_in(tmp_path).items() if k[0] == "loss"} == {
        ("loss", 2): 1.0, ("loss", 4): 2.0, ("loss", 6): 7.0,
    }  # fmt: skip


def test_without_tensorboard_the_log_is_the_file_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    sinks = open_sinks(tmp_path, 0, {}, wandb=False)
    assert [type(sink) for sink in sinks] == [JsonLines]
    for sink in sinks:
        sink.close()


def test_wandb_is_asked_for_and_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="wandb is not installed"):
        open_sinks(tmp_path, 0, {}, wandb=True)
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def __init__(self, live):
        super().__init__()
        self.live = live

    def isatty(self):
        return self.live


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (247, "4:07"), (7985, "2:13:05")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text


def test_a_pipe_gets_plain_lines_now_and_then(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("anedl.engine.log.time.monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", out := Terminal(live=False))
    display = Display("anedl on digits:", 200)
    display.begin(10)
    display.update(10, "loss 1.000", 50.0)
    assert out.getvalue() == "", "not before five seconds"
    now[0] += 10
    display.update(20, "loss 0.500", 12345.6)
    now[0] += 1
    display.update(30, "loss 0.400", 1.0)
    display.say("note")
    display.close()
    lines = out.getvalue().splitlines()
    # Ten steps in ten seconds: 180 steps are three minutes.
    assert lines == [
        "anedl on digits: 20/200  10 % loss 0.500 12,346 images/s 3:00 left", "note",
    ]  # fmt: skip
    assert "\x1b" not in out.getvalue()


def test_quiet_is_quiet(monkeypatch):
    monkeypatch.setattr(sys, "stderr", out := Terminal(live=True))
    display = Display("title", 10, quiet=True)
    display.update(1, "text", 1.0, force=True)
    display.say("note")
    display.close()
    assert out.getvalue() == ""


def test_a_terminal_gets_one_line_that_is_redrawn(monkeypatch):
    terminal = Terminal(live=True)
    terminal.fileno = lambda: 2
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(
        "anedl.engine.log.os.get_terminal_size", lambda _: os.terminal_size((40, 20))
    )
    display = Display("title:", 10)
    display.update(1, "loss 1.0", 5.0)
    display.update(2, "loss 0.5", 5.0)
    display.close()
    redrawn = terminal.getvalue().split("\r\x1b[2K")
    assert "\n" not in terminal.getvalue()
    assert redrawn[1].startswith("title: 1/10  10 % loss 1.0")
    assert all(len(line) < 40 for line in redrawn)
    assert redrawn[-1] == ""


@pytest.mark.parametrize("method", ["prosub", "mtc", "scomatch", "t2t"])
def test_how_often_a_run_is_logged_changes_nothing_that_is_learnt(
    tiny_spec, tiny_run, tmp_path, method
):
    """Of methods that draw in their steps."""
    for every in (1, 3):
        tiny_run(tiny_spec(method, log_every=every), tmp_path / str(every))
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("1", "3"))
    for key in one:
        assert torch.equal(one[key], other[key]), key
