"""How far a transfer is: a bar that redraws itself on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

Progress = Callable[[int, int | None], None]
"""Called with the bytes there are so far and the bytes there will be (None when unknown)."""

_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 30.0
_BAR_CELLS = 30


class TransferBar:
    """A `Progress` that writes text: done, total, rate and time left.

    It counts bytes, or whatever `unit` names.
    """

    def __init__(
        self,
        label: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str | None = None,
    ) -> None:
        self._unit = unit
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._redraws = self._stream.isatty()
        self._began: tuple[float, int] | None = None
        self._shown_at = float("-inf")
        self._width = 0

    def __call__(self, done: int, total: int | None) -> None:
        """Show the state, unless it was shown a moment ago."""
        now = self._clock()
        if self._began is None or done < self._began[1]:
            # What an earlier, broken transfer left counts as done, but not towards the rate.
            self._began = (now, done)
        complete = done == total
        pause = _REDRAW_SECONDS if self._redraws else _LINE_SECONDS
        if now - self._shown_at < pause and not complete:
            return
        self._shown_at = now
        text = self._text(now, done, total)
        if self._redraws:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line, so that what is written next starts on its own."""
        if self._redraws and self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _text(self, now: float, done: int, total: int | None) -> str:
        began, before = self._began if self._began is not None else (now, done)
        seconds = now - began
        rate = (done - before) / seconds if seconds > 0 else 0.0
        speed = f"{self._amount(rate)}/s" if rate else ""
        if total is None:
            return "  ".join(filter(None, (self._label, self._amount(done), speed)))
        share = done / total if total else 1.0
        filled = int(share * _BAR_CELLS)
        bar = f"[{'#' * filled}{'.' * (_BAR_CELLS - filled)}]" if self._redraws else ""
        left = f"{_clock_text((total - done) / rate)} left" if rate and done < total else ""
        size = f"{self._amount(done, bare=True)} of {self._amount(total)}"
        return "  ".join(filter(None, (self._label, bar, f"{share:4.0%}", size, speed, left)))

    def _amount(self, count: float, bare: bool = False) -> str:
        number = f"{count / 1e6:.1f}" if self._unit is None else f"{count:,.0f}"
        return number if bare else f"{number} {self._unit or 'MB'}"


def _clock_text(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
