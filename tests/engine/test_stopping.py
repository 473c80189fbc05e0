"""A signal ends a run at a checkpoint, and nothing of it is lost."""

import os
import signal
import threading

import pytest

from anedl.engine.log import JsonLines
from anedl.engine.stopping import StopRequest

# The tiny run logs after these steps; epochs of three steps end at 3, 6 and 9.
LOGGED = [2, 3, 5, 6, 8, 9]


@pytest.fixture(autouse=True)
def as_from_a_terminal():
    """A shell that starts the tests in the background leaves them deaf to interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def signal_at(monkeypatch):
    """Send this process a signal when the run writes the log line of a step."""

    def arrange(step_wanted, number):
        write = JsonLines.write

        def write_and_signal(self, step, row):
            write(self, step, row)
            if step == step_wanted and "train" in row:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(JsonLines, "write", write_and_signal)

    yield arrange
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
@pytest.mark.parametrize("step", [2, 3, 8])
def test_a_signal_saves_at_once_and_the_run_goes_on_from_there(
    tiny_spec, tiny_run, tmp_path, signal_at, monkeypatch, step, number, raised
):
    """However long the next checkpoint would have been away."""
    saved = []
    spec = tiny_spec("anedl")
    signal_at(step, number)
    with pytest.raises(raised) as ended:
        tiny_run(spec, tmp_path, after_save=saved.append, save_seconds=3600)
    assert saved == [step]
    if raised is SystemExit:
        assert ended.value.code == 143  # as the shell reports a process that SIGTERM ended
    monkeypatch.undo()
    tiny_run(spec, tmp_path, after_save=saved.append, save_seconds=3600, resume=True)
    assert saved == [step, 9]


def test_a_signal_at_the_last_step_lets_the_run_end_but_nothing_after_it(
    tiny_spec, tiny_run, tmp_path, signal_at
):
    signal_at(LOGGED[-1], signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tiny_run(tiny_spec("anedl"), tmp_path, save_seconds=3600)
    assert (tmp_path / "results.json").exists()


def test_the_second_signal_stops_at_once():
    said = []
    request = StopRequest(said.append)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        assert request
        assert len(said) == 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        request.close()


def test_handlers_are_given_back(tiny_spec, tiny_run, tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    tiny_run(tiny_spec("anedl"), tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        request = StopRequest(lambda text: None)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not request
        request.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_in_a_thread_does_not_listen():
    requests = []
    thread = threading.Thread(target=lambda: requests.append(StopRequest(lambda text: None)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not requests[0]
