"""Work through a queue of trainings in stretches of time, and put each into the ledger.

    python benchmarks/trials.py benchmarks/queue.txt --folder runs/trials --minutes 9

A line of the queue is `NAME: words of anedl train`; `*: words` holds for the lines after it; `#`
begins a comment. A trial that has ended is not run again, one that was cut goes on from its last
epoch, and none is begun when less than `--least` seconds are left. Two at once hide the time that
one of them compiles.
"""

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from anedl.ledger.entry import record_run

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


def run_trial(trial, folder, end, least, results):
    """Train for what is left of the time; say and record what came out."""
    run = folder / trial.name
    if (run / "results.json").exists():
        return
    left = end - time.monotonic()
    if left < least:
        return
    words = [*trial.words, "--out", str(run), "--resume", "--quiet", "--no-report"]
    with (folder / f"{trial.name}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "anedl", "train", *words], stdout=log, stderr=log
        )
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(TO_STOP)
            except subprocess.TimeoutExpired:
                process.kill()
    if (run / "results.json").exists():
        print(describe(trial.name, run), flush=True)
        record_run(run, results, trial.command)
    else:
        said = (folder / f"{trial.name}.log").read_text()[-200:].replace("\n", " ")
        print(f"{trial.name:<16} not ended: {said}", flush=True)


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
    arguments.folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes
    with ThreadPoolExecutor(arguments.at_once) as pool:
        rest = (arguments.folder, end, arguments.least, arguments.results)
        for future in [pool.submit(run_trial, trial, *rest) for trial in trials]:
            future.result()
    ended = sum((arguments.folder / t.name / "results.json").exists() for t in trials)
    print(f"{ended} of {len(trials)} trials have ended")


if __name__ == "__main__":
    main()
