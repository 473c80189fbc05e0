"""Work through a queue of trainings in stretches of time, and put each into the ledger.

    python benchmarks/trials.py benchmarks/queue.txt --folder runs/trials --minutes 9

A line of the queue is `NAME: words of anedl train`; `*: words` holds for the lines after it; `#`
begins a comment. A trial that has ended, here or by the ledger, is not run again, one that was cut
goes on from its last epoch, and none is begun when less than `--least` seconds are left. Two at
once hide the time that one of them compiles. Ctrl-C and SIGTERM begin no more and let those under
way save where they are. Exit status: 0, 1 where a trial failed, 130 where it was told to stop.
"""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anedl.cli import INTERRUPTED
from anedl.cli.train import spec_of
from anedl.errors import AnedlError
from anedl.ledger.entry import read_finished, read_ledger, record_run

TO_STOP = 10  # seconds a training gets to end after the interruption


@dataclass(frozen=True)
class Trial:
    """A name and the words of `anedl train` that belong to it."""

    name: str
    words: tuple[str, ...]

    @property
    def command(self):
        """As one would type it."""
        return shlex.join(["anedl", "train", *self.words])


def read_queue(path):
    """Every trial of the file, in its order; a name that comes twice is refused."""
    common, trials = (), []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        name = words[0].removesuffix(":")
        if name == words[0] or not name:
            sys.exit(f"{path}, line {number}: expected `NAME: words`, got {line!r}")
        if name == "*":
            common = tuple(words[1:])
        elif any(name == trial.name for trial in trials):
            sys.exit(f"{path}, line {number}: there are two trials called {name}")
        else:
            trials.append(Trial(name, (*common, *words[1:])))
    return trials


@dataclass(frozen=True)
class Stretch:
    """Where trials are run and recorded, until when, and what tells them to stop."""

    folder: Path
    results: Path
    end: float  # of the monotonic clock
    least: float
    stop: threading.Event

    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()


def specs_of(trials, queue):
    """What each trial trains; a line that `anedl train` would not take ends the program."""
    specs = {}
    for trial in trials:
        try:
            specs[trial.name] = spec_of(list(trial.words))
        except AnedlError as error:
            sys.exit(f"{queue}, trial {trial.name}: {error}")
        except SystemExit:  # argparse has said what it does not understand
            sys.exit(f"{queue}, trial {trial.name}: not what `anedl train` takes")
    return specs


def check_folders(trials, specs, folder):
    """Refuse a folder whose run has ended with other options than the queue has now."""
    for trial in trials:
        run = folder / trial.name
        if not (run / "results.json").exists():
            continue
        if read_finished(run).config_hash != specs[trial.name].digest:
            sys.exit(
                f"{run}: holds a run that has ended, of other options than the queue's "
                f"{trial.name}: give the trial another name, or move the run away"
            )


def run_trial(trial, stretch):
    """Train for what is left of the time, say and record what came out; how it went, in a word."""
    run = stretch.folder / trial.name
    if (run / "results.json").exists():
        if not (stretch.results / "runs" / read_finished(run).file_name).exists():
            record_run(run, stretch.results, trial.command)
        return "ended"
    if stretch.stop.is_set() or stretch.left() < stretch.least:
        return "waits"
    status = train_until(trial, run, stretch)
    if (run / "results.json").exists():
        print(describe(trial.name, run), flush=True)
        record_run(run, stretch.results, trial.command)
        return "ended"
    log = (stretch.folder / f"{trial.name}.log").read_text(errors="replace")
    said = log.strip()[-200:].replace("\n", " ")
    print(f"{trial.name:<16} not ended: {said}", flush=True)
    return "failed" if status not in (None, INTERRUPTED) else "cut"


def train_until(trial, run, stretch):
    """Let a training run to its end or to that of the time; its exit status, None if it was cut.

    It has a process group of its own, so that Ctrl-C here reaches it once, and by us: a second
    signal would keep it from saving.
    """
    words = [*trial.words, "--out", str(run), "--resume", "--quiet", "--no-report"]
    with (stretch.folder / f"{trial.name}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "anedl", "train", *words],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None:
            if stretch.stop.wait(0.2) or stretch.left() <= 0:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(TO_STOP)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                return None
    return process.returncode


def describe(name, run):
    """The figures of an ended run in one line, in per cent."""
    results = json.loads((run / "results.json").read_text())
    last = results["last"]
    areas = {key: value["auroc"] for key, value in last["test"]["by_score"].items()}
    purity = [
        row["selection"]["purity"]
        for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if "purity" in row.get("selection", {})
    ]
    parts = [f"validation {100 * last['validation_error']:.1f}",
             f"error {100 * last['test']['error']:.1f}"]  # fmt: skip
    wanted = ("score", "total_evidence", "max_softmax")
    parts += [f"{key} {100 * areas[key]:.1f}" for key in wanted if key in areas]
    if purity:
        parts.append(f"purity {100 * purity[0]:.1f} to {100 * purity[-1]:.1f}")
    return f"{name:<16} {'  '.join(parts)}  {results['seconds']:.0f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("queue", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/trials"), help="of the runs")
    parser.add_argument("--results", type=Path, default=Path("results"), help="of the ledger")
    parser.add_argument("--minutes", type=float, default=9.0, help="time for all of it")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--least", type=float, default=75.0, help="seconds a trial is begun for")
    arguments = parser.parse_args()
    trials = read_queue(arguments.queue)
    specs = specs_of(trials, arguments.queue)
    check_folders(trials, specs, arguments.folder)
    recorded = {run.config_hash for run in read_ledger(arguments.results)}
    done = [trial for trial in trials if specs[trial.name].digest in recorded]
    trials = [trial for trial in trials if trial not in done]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    end = time.monotonic() + 60 * arguments.minutes
    stretch = Stretch(arguments.folder, arguments.results, end, arguments.least, stop)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        futures = [pool.submit(run_trial, trial, stretch) for trial in trials]
        outcomes = [future.result() for future in futures]
    ended = len(done) + outcomes.count("ended")
    print(f"{ended} of {len(done) + len(trials)} trials have ended", end="")
    if waiting := outcomes.count("waits"):
        why = "" if stop.is_set() else f", for which less than {arguments.least:g} s were left"
        print(f"; {waiting} not begun{why}", end="")
    print()
    if stop.is_set():
        return INTERRUPTED
    return 1 if "failed" in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
