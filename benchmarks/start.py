"""Seconds from the command to the first step of a training: nothing compiled yet, then warm.

    python benchmarks/start.py --out results/benchmarks/start.json

Every start is a process of its own, as a user would type it; the caches of compiled code begin in
an empty folder. The reference is a process that imports torch and nothing else, after each start.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from anedl.engine.results import describe_device

# One step a log line: the first line in the log is the first step.
LENGTH = {"--epochs": 2, "--pretrain-epochs": 1, "--epoch-steps": 64, "--log-every": 1}
LENGTH_WORDS = [word for pair in LENGTH.items() for word in map(str, pair)]


def seconds_to_first_step(words, folder, environment):
    """Start `anedl train` with `words`, wait for its first log line, and end it."""
    command = [sys.executable, "-m", "anedl", "train", *words, *LENGTH_WORDS, "--no-report"]
    command += ["--quiet", "--out", str(folder)]
    log = folder / "metrics.jsonl"
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (log.exists() and log.stat().st_size):
            if process.poll() is not None:
                sys.exit(f"the training ended before its first step:\n{process.stderr.read()}")
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        process.kill()
    return seconds


def seconds_to_import_torch():
    """The reference: what no program that uses torch can do without."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="of anedl train", metavar="WORD",
                        default=["cifar100-55/50", "--method", "anedl-released"])  # fmt: skip
    parser.add_argument("--warm", type=int, default=3, help="warm starts after the first")
    parser.add_argument("--cache", type=Path, help="keep compiled code here; default: nowhere")
    parser.add_argument("--out", type=Path)
    arguments, more = parser.parse_known_args()
    words = [*arguments.words, *more]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        environment = {**os.environ, "ANEDL_CACHE": str(arguments.cache or place / "cache")}
        environment.pop("TORCHINDUCTOR_CACHE_DIR", None)
        for number in range(1 + arguments.warm):
            seconds = seconds_to_first_step(words, place / str(number), environment)
            reference = seconds_to_import_torch()
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            rows.append({
                "name": "warm" if number else "cold", "command": " ".join(["anedl train", *words]),
                "seconds": round(seconds, 1), "import_torch_s": round(reference, 1),
                "ratio": round(seconds / reference, 1), "device": describe_device(device),
                "torch": torch.__version__,
            })  # fmt: skip
            print(
                f"{rows[-1]['name']}  {seconds:6.1f} s, torch alone {reference:.1f} s", flush=True
            )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
