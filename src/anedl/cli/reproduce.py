"""Run the paper's experiments and set them beside what was published.

    anedl reproduce                                   # what there is
    anedl reproduce ablation-ano --setting digits --seeds 1 2
    anedl reproduce table1 --setting cifar100-55/50 --methods anedl openmatch --budget fast
    anedl reproduce table1 --dry-run                  # which runs are there, which are missing

Runs that are finished are kept, those that were cut go on, and only what is missing is trained.
Every finished run is recorded in the ledger (RESULTS/runs); the figure goes to RESULTS/figures.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from anedl.cli.train import add_surroundings

if TYPE_CHECKING:
    from anedl.presets.experiment import Experiment
    from anedl.presets.jobs import Done
    from anedl.presets.reproduce import Terms


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare what to reproduce and on what terms."""
    parser.add_argument("what", nargs="?", default="list", help="an experiment, or list (default)")
    parser.add_argument(
        "--setting", nargs="+", metavar="S", help="these settings (default: the paper's)"
    )
    parser.add_argument(
        "--methods", nargs="+", metavar="M",
        help="these methods, by name or as path/to/file.py:ClassName (default: the experiment's)",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds (default: 1 2 3)")
    parser.add_argument(
        "--budget", choices=["full", "fast"], default="full",
        help="the paper's length (full, the default) or a quarter of it (fast)",
    )  # fmt: skip
    parser.add_argument("--dev", action="store_true", help="on the development splits")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="where run folders are (default: runs)"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"),
        help="the ledger and the figures (default: results)",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="say what would be run, train none")
    add_surroundings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run, print the table and draw; 1 when a run failed."""
    from anedl.errors import AnedlError, unknown_name
    from anedl.presets.drawings import save_figure
    from anedl.presets.jobs import Place
    from anedl.presets.paper import EXPERIMENTS, SEEDS
    from anedl.presets.reproduce import Terms, run_experiment
    from anedl.presets.tables import markdown

    if arguments.what == "list":
        _print_list()
        return 0
    if arguments.what not in EXPERIMENTS:
        raise unknown_name("experiment", arguments.what, [*EXPERIMENTS, "list"])
    experiment = EXPERIMENTS[arguments.what]()
    if arguments.setting:
        experiment = experiment.with_settings(arguments.setting)
    if arguments.methods:
        experiment = experiment.with_methods(arguments.methods)
    seeds = tuple(dict.fromkeys(arguments.seeds or SEEDS))
    if experiment.drawing == "case-study":
        seeds = seeds[:1]  # it shows single images of one model
    terms = Terms(
        seeds=seeds, budget=arguments.budget,
        development=arguments.dev, runs=arguments.runs, results=arguments.results,
    )  # fmt: skip
    if arguments.dry_run:
        _print_plan(experiment, terms)
        return 0
    told = None if arguments.quiet else _Progress(experiment, terms)
    outcome = run_experiment(experiment, terms, Place(arguments.device, arguments.data), told)
    print(markdown(outcome), end="")
    if outcome.done:
        try:
            print(f"\nfigure: {save_figure(outcome, arguments.data)}")
        except AnedlError as error:
            print(f"no figure: {error}", file=sys.stderr)
    for done in outcome.failures:
        print(f"failed: {done.job.folder}: {done.error}", file=sys.stderr)
    return 1 if outcome.failures else 0


class _Progress:
    """One line a run that ends, with the time left by the steps that are left."""

    def __init__(self, experiment: "Experiment", terms: "Terms") -> None:
        from anedl.presets.reproduce import plan, to_train

        planned = plan(experiment, terms)
        waiting = to_train(planned)
        self.began = time.monotonic()
        self.total, self.ended = len(waiting), 0
        self.steps, self.steps_done = sum(one.spec.train.steps for one in waiting), 0
        print(
            f"{len(planned) - len(waiting)} of {len(planned)} runs are there, {len(waiting)} to "
            f"train ({self.steps:,} steps)",
            file=sys.stderr, flush=True,
        )  # fmt: skip

    def __call__(self, done: "Done") -> None:
        from anedl.engine.log import clock

        self.ended += 1
        self.steps_done += done.job.steps
        passed = time.monotonic() - self.began
        left = clock(passed / self.steps_done * (self.steps - self.steps_done))
        how = "done" if done.error is None else f"FAILED: {done.error}"
        print(
            f"  {self.ended} of {self.total}: {done.job.folder} {how}; about {left} left",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _print_list() -> None:
    from anedl.presets.paper import EXPERIMENTS

    for name, make in EXPERIMENTS.items():
        experiment = make()
        print(f"{name:<16} {(make.__doc__ or '').splitlines()[0]}")
        print(f"{'':<16} {len(experiment.rows)} rows on {', '.join(experiment.settings)}")
    print("\n`anedl reproduce NAME --dry-run` says what it would train.")


def _print_plan(experiment: "Experiment", terms: "Terms") -> None:
    """One block a run: where it stands, its command, steps, published score."""
    from anedl.ledger.published import published_file, read_published
    from anedl.presets.reproduce import plan, to_train
    from anedl.presets.tables import NAMES, published_figure

    published = read_published(published_file(terms.results))
    planned = plan(experiment, terms)
    for one in planned:
        print(f"{one.state:<9} {one.row.command(one.seed, terms.budget, terms.development)}")
        item = one.row.published(published, experiment.published_as)
        scores = [
            f"{NAMES[measure]} {figure.mean}" + ("" if figure.std is None else f" ± {figure.std}")
            for measure in experiment.measures
            if (figure := published_figure(item, measure)) is not None
        ]
        stated = f"{', '.join(scores)} ({item.source})" if item and scores else "nothing"
        print(
            f"{'':<9} {one.spec.train.steps:,} steps, time not measured; published: {stated}; "
            f"{one.folder}"
        )
    left = to_train(planned)
    steps = sum(one.spec.train.steps for one in left)
    print(f"{len(left)} of {len(planned)} runs to train, {steps:,} steps")
