"""Ending a run early without losing work: Ctrl-C or SIGTERM asks, a second one insists."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """True once Ctrl-C or SIGTERM (what batch systems send) has asked the run to end.

    After that the signals do again what they did before, so a second one ends the process at
    once. Only the main thread may listen; a run in another one is never asked.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._signal: int | None = None
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            handler = signal.getsignal(number)
            # Who ignores a signal (nohup does) or has plans of their own for it keeps them.
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                self._before[number] = handler
                signal.signal(number, self._ask)

    def __bool__(self) -> bool:
        return self._signal is not None

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self.close()
        self._say("stopping after the next log line, with a checkpoint; once more stops at once")

    def close(self) -> None:
        """Listen no longer."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def obey(self) -> None:
        """End as the signal would have ended the process; to be called when all is saved."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self._signal is not None:
            raise SystemExit(128 + self._signal)
