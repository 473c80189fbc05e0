import io

from anedl.data.progress import TransferBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_terminal_shows_bar_rate_and_time_left():
    stream, clock = Terminal(), Clock()
    bar = TransferBar("set.tar.gz", stream, clock)
    bar(0, 100_000_000)
    clock.now = 10.0
    bar(25_000_000, 100_000_000)
    shown = stream.getvalue().split("\r")[-1]
    cells = "[" + 7 * "#" + 23 * "." + "]"
    assert shown == f"set.tar.gz  {cells}   25%  25.0 of 100.0 MB  2.5 MB/s  0:30 left"
    clock.now = 20.0
    bar(100_000_000, 100_000_000)
    assert "100%" in stream.getvalue().split("\r")[-1]
    bar.close()
    bar.close()
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith("\n")


def test_terminal_is_not_flooded():
    stream, clock = Terminal(), Clock()
    bar = TransferBar("x", stream, clock)
    for done in range(1000):
        clock.now = done / 1000
        bar(done, 10_000)
    assert 5 <= stream.getvalue().count("\r") <= 11


def test_resumed_bytes_do_not_count_towards_the_rate():
    stream, clock = Terminal(), Clock()
    bar = TransferBar("x", stream, clock)
    bar(90_000_000, 100_000_000)
    clock.now = 5.0
    bar(95_000_000, 100_000_000)
    assert "1.0 MB/s  0:05 left" in stream.getvalue()


def test_log_gets_sparse_lines():
    stream, clock = io.StringIO(), Clock()
    bar = TransferBar("x", stream, clock)
    for second in range(100):
        clock.now = float(second)
        bar(second * 1_000_000, 99_000_000)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5  # at 0, 30, 60 and 90 seconds and at the end
    assert lines[1] == "x   30%  30.0 of 99.0 MB  1.0 MB/s  1:09 left"
    assert "\r" not in stream.getvalue()


def test_unknown_total():
    stream, clock = io.StringIO(), Clock()
    bar = TransferBar("x", stream, clock)
    bar(0, None)
    clock.now = 3600.0
    bar(7_200_000_000, None)
    assert stream.getvalue().splitlines() == ["x  0.0 MB", "x  7200.0 MB  2.0 MB/s"]


def test_hours_are_written():
    stream, clock = Terminal(), Clock()
    bar = TransferBar("x", stream, clock)
    bar(0, 100_000_000)
    clock.now = 100.0
    bar(1_000_000, 100_000_000)
    assert "2:45:00 left" in stream.getvalue()
