"""What a run says while it trains: `metrics.jsonl` always, other places where wanted."""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from anedl.errors import ConfigError
from anedl.files import naming, write_text


class Sink(Protocol):
    """A place that takes rows of figures."""

    def write(self, step: int, row: dict[str, Any]) -> None:
        """Take the figures of one moment."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class JsonLines:
    """`metrics.jsonl`: one JSON object a line, appended and flushed at once."""

    def __init__(self, path: Path, resume_step: int) -> None:
        # Rows after the checkpoint belong to steps that will be taken again.
        rows = read_rows(path) if path.exists() else []
        kept = [row for row in rows if row["step"] <= resume_step] if resume_step else []
        write_text(path, "".join(json.dumps(row) + "\n" for row in kept))
        self._path = path
        self._file = path.open("a", encoding="utf-8")

    def write(self, step: int, row: dict[str, Any]) -> None:
        """Append one line."""
        with naming(self._path):
            self._file.write(json.dumps({"step": step, **row}) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Bring the file to disk."""
        os.fsync(self._file.fileno())
        self._file.close()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a last line cut short by a crash is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


class TensorBoard:
    """Scalars for TensorBoard, when the package is installed."""

    def __init__(self, folder: Path, resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Hidden from this step on: what was logged at the checkpoint itself stays.
        purge_step = resume_step + 1 if resume_step else None
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def write(self, step: int, row: dict[str, Any]) -> None:
        """Write every number of the row, nested ones under their path."""
        for name, value in _numbers(row):
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush."""
        self._writer.close()


class WeightsAndBiases:
    """Scalars for Weights & Biases; only when asked for."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError("--wandb: the package wandb is not installed") from error
        self._run = wandb.init(project="anedl", dir=str(folder), config=config, resume="allow")

    def write(self, step: int, row: dict[str, Any]) -> None:
        """Log every number of the row."""
        self._run.log(dict(_numbers(row)), step=step)

    def close(self) -> None:
        """End the run there."""
        self._run.finish()


def _numbers(row: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + name, float(value)))
    return found


def open_sinks(folder: Path, resume_step: int, config: dict[str, Any], wandb: bool) -> list[Sink]:
    """`metrics.jsonl`, TensorBoard where it is installed, W&B where it was asked for."""
    # What was asked for comes first: it may be refused, and then nothing else is open yet.
    sinks: list[Sink] = [WeightsAndBiases(folder, config)] if wandb else []
    sinks.append(JsonLines(folder / "metrics.jsonl", resume_step))
    with suppress(ImportError):  # an extra; metrics.jsonl holds the same figures
        sinks.append(TensorBoard(folder / "tensorboard", resume_step))
    return sinks


class Display:
    """Progress on standard error: one line that redraws itself, or plain lines in a pipe."""

    def __init__(self, title: str, steps: int, quiet: bool = False) -> None:
        self.title = title
        self.steps = steps
        self.quiet = quiet
        self._live = sys.stderr.isatty()
        self._started = self._last = time.monotonic()
        self._first_step = 0

    def begin(self, step: int) -> None:
        """Count the time from here: the run goes on after `step`."""
        self._first_step, self._started = step, time.monotonic()

    def update(self, step: int, text: str, images_per_second: float, force: bool = False) -> None:
        """Show where the run stands; in a pipe at most one line every five seconds."""
        now = time.monotonic()
        if self.quiet or not (force or self._live or now - self._last >= 5):
            return
        self._last = now
        done = step - self._first_step
        left = (now - self._started) / done * (self.steps - step) if done else 0.0
        line = (
            f"{self.title} {step}/{self.steps} {100 * step / self.steps:3.0f} % "
            f"{text} {images_per_second:,.0f} images/s {clock(left)} left"
        )
        if self._live:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            print(f"\r\x1b[2K{line[: width - 1]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            print(("\r\x1b[2K" if self._live else "") + text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the cursor on a fresh line."""
        if self._live and not self.quiet:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Seconds as 4:07 or 2:13:05."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
