"""Run the paper's experiments and set them beside what was published.

    anedl reproduce LIST                              # what there is, published scores, times
    anedl reproduce ablation-ano --setting digits --seeds 1 2
    anedl reproduce ablation-ano --method anedl --weight-decay 5e-4
    anedl reproduce table1 --setting cifar100-55/50 --methods anedl-released openmatch --budget fast
    anedl reproduce table1 --dry-run                  # which runs are there, which are missing

Runs that are finished are kept, those that were cut go on, and only what is missing is trained.
Every finished run is recorded in the ledger (RESULTS/runs); the figure goes to RESULTS/figures.
Options of the engine and of the methods count for every row that has them; `anedl reproduce NAME
--help` lists them.
"""

import argparse
import inspect
import sys
import textwrap
import time
from dataclasses import field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anedl.cli.options import add_options, given_options
from anedl.cli.train import add_surroundings
from anedl.errors import AnedlError, ConfigError, unknown_name
from anedl.options import option_types

if TYPE_CHECKING:
    from anedl.presets.experiment import Experiment
    from anedl.presets.jobs import Done, Place
    from anedl.presets.reproduce import Terms

# Both are of the same runs: what the one leaves out, and the name of the one that shows it.
OTHER_TABLE = {"table1": ("error", "table2"), "table2": ("AUROC", "table1")}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare what to reproduce and on what terms; the options depend on the rows' methods."""
    from anedl.engine.config import TrainConfig

    # Listing a hundred flags before the description would bury it.
    parser.usage = "anedl reproduce NAME [--setting S …] [--methods M …] [--seeds N …] [options]"
    _add_terms(parser)
    early = argparse.ArgumentParser(parser.prog, parser.usage, add_help=False, allow_abbrev=False)
    _add_terms(early)
    named, _ = early.parse_known_args(words)
    add_options(parser, TrainConfig, "options of the engine, for every run", "train")
    if experiment := _experiment(named.what, named.setting, named.methods):
        add_options(parser, _all_options(experiment), "options of the methods", "options")


def _add_terms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", default="list", help="an experiment, or LIST (default)")
    parser.add_argument(
        "--setting", nargs="+", metavar="S", help="these settings (default: the paper's)"
    )
    parser.add_argument(
        "--methods", "--method", nargs="+", metavar="M",
        help="these methods, by name or as path/to/file.py:ClassName (default: the experiment's); "
        "an ablation of anedl-released, which stands for ANEDL, can be made of anedl, too",
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds (default: 1 2 3)")
    parser.add_argument(
        "--budget", choices=["full", "fast"], default="full",
        help="as long as the authors' code trains (full, the default) or a quarter of it (fast; "
        "digits: a half)",
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
    add_surroundings(
        parser,
        "cpu, cuda, or several GPUs: cuda:0,cuda:1 (default: auto, every GPU there is, a run on "
        "each; without one, the CPU)",
    )


def _experiment(
    what: str, settings: list[str] | None, methods: list[str] | None
) -> "Experiment | None":
    """The experiment of that name with these settings and methods; None for the list."""
    from anedl.presets.paper import EXPERIMENTS

    if what.lower() == "list":
        return None
    if what not in EXPERIMENTS:
        raise unknown_name("experiment", what, [*EXPERIMENTS, "list"])
    experiment = EXPERIMENTS[what]()
    if settings:
        experiment = experiment.with_settings(settings)
    return experiment.with_methods(methods) if methods else experiment


def _all_options(experiment: "Experiment") -> type:
    """One dataclass with the options of all methods of an experiment."""
    from anedl.engine.spec import check_entry
    from anedl.methods.catalogue import get_method

    united: dict[str, tuple[str, Any, Any]] = {}
    for method in dict.fromkeys(row.method for row in experiment.rows):
        entry = get_method(method)
        check_entry(entry)
        config_type = entry.method.config_type
        types = option_types(config_type)
        for one in fields(config_type):
            same = field(default=one.default, metadata=one.metadata)
            united.setdefault(one.name, (one.name, types[one.name], same))
    return make_dataclass("Options", united.values(), frozen=True)


def run(arguments: argparse.Namespace) -> int:
    """Run, print the table and draw; 1 when a run failed."""
    from anedl.presets.drawings import save_figure
    from anedl.presets.jobs import Place
    from anedl.presets.paper import SEEDS
    from anedl.presets.reproduce import Terms, run_experiment
    from anedl.presets.tables import markdown

    experiment = _experiment(arguments.what, arguments.setting, arguments.methods)
    if experiment is None:
        _print_list()
        return 0
    experiment = experiment.with_options(given_options(arguments, "options"))
    seeds = tuple(dict.fromkeys(arguments.seeds or SEEDS))
    if experiment.drawing == "case-study":
        seeds = seeds[:1]  # it shows single images of one model
    terms = Terms(
        seeds=seeds, budget=arguments.budget, development=arguments.dev, runs=arguments.runs,
        results=arguments.results, train=given_options(arguments, "train"),
    )  # fmt: skip
    place = Place(arguments.device, arguments.data)
    if arguments.dry_run:
        _print_plan(experiment, terms, place)
        return 0
    told = None if arguments.quiet else _Progress(experiment, terms)
    outcome = run_experiment(experiment, terms, place, told)
    print(markdown(outcome), end="")
    if outcome.done:
        try:
            drawn = save_figure(outcome, arguments.data)
        except (AnedlError, OSError) as error:
            print(f"no figure: {error}", file=sys.stderr)
        else:
            print(f"\nfigure: {drawn}")
        if experiment.name in OTHER_TABLE:
            measure, other = OTHER_TABLE[experiment.name]
            print(f"{measure} of the same runs: the same command with {other}, which finds them")
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
        # At most, for what is under way is counted as if it had not begun.
        left = clock(passed / self.steps_done * (self.steps - self.steps_done))
        how = "done" if done.error is None else f"FAILED: {done.error}"
        print(
            f"  {self.ended} of {self.total}: {done.job.folder} {how}; at most {left} left",
            file=sys.stderr, flush=True,
        )  # fmt: skip


def _print_list() -> None:
    from anedl.presets.paper import EXPERIMENTS

    for name, make in EXPERIMENTS.items():
        experiment = make()
        first, *rest = inspect.cleandoc(make.__doc__ or "").splitlines()
        rows = len(experiment.rows) // len(experiment.settings)
        print(f"{name}: {first}")
        where = f"Rows: {rows} on {', '.join(experiment.settings)}."
        print(textwrap.indent(textwrap.fill(where, 96), "    "))
        print(textwrap.indent("\n".join(filter(None, rest)), "    "), end="\n\n")
    print("Predicted times are of one NVIDIA H200, from measured steps. On the digits (--setting")
    print("digits) a run of ANEDL takes about half a minute on two idle CPU cores.")
    print("`anedl reproduce NAME --dry-run` says which runs are there and what it would train.")


def _print_plan(experiment: "Experiment", terms: "Terms", place: "Place") -> None:
    """For each row its steps, time and published score, then where each run stands, and how."""
    from anedl.ledger.entry import read_ledger
    from anedl.ledger.published import NAMES, comparable_figure, published_file, read_published
    from anedl.ledger.rows import format_duration
    from anedl.presets.gpus import names_of
    from anedl.presets.reproduce import missing_data, plan, to_train
    from anedl.presets.times import expected_time, stated

    published = read_published(published_file(terms.results))
    recorded = read_ledger(terms.results)
    digests = {run.config_hash for run in recorded}
    planned = plan(experiment, terms)
    names = names_of(place.device)
    # Several are for the bench, and one run takes one of them.
    where = [] if names == ["auto"] or len(names) > 1 else ["--device", *names]
    where += [] if place.data_root is None else ["--data", str(place.data_root)]
    told = ""
    for one in planned:
        item = one.row.published(published, experiment.published_as) if terms.comparable else None
        scores = [
            f"{NAMES[measure]} {figure.mean}" + ("" if figure.std is None else f" ± {figure.std}")
            for measure in experiment.measures
            if (figure := comparable_figure(item, measure)) is not None
        ]
        said = f"{', '.join(scores)} ({item.source})" if item and scores else "nothing"
        about = (
            f"{one.row.setting}, {one.row.label}: {one.spec.train.steps:,} steps a run, "
            f"{stated(expected_time(one.spec, recorded))}; published: {said}"
        )
        if about != told:  # once for the seeds of a row
            print(about)
            told = about
        more = [*where, "--out", str(one.folder), *(["--resume"] if one.state == "cut" else [])]
        command = one.row.command(one.seed, terms.budget, terms.development, terms.train, more)
        print(f"{one.state:<9} {command}")
        if one.state == "missing" and one.spec.digest in digests:
            print(f"{'':<9} recorded, but single images are shown, which are in its folder alone")
    left = to_train(planned)
    steps = sum(one.spec.train.steps for one in left)
    print(f"{len(left)} of {len(planned)} runs to train, {steps:,} steps")
    times = [expected_time(one.spec, recorded) for one in left]
    if known := [found.seconds for found in times if found is not None]:
        of_some = "" if len(known) == len(left) else f" for the {len(known)} of which one is known"
        gpus = _gpus_here(place.device)
        side = f"; {len(gpus)} GPUs share it, a run on each" if len(gpus) > 1 else ""
        print(f"time: about {format_duration(sum(known))} one after the other{of_some}{side}")
    if lacking := missing_data(left, place.data_root):
        print(f"data are missing:\n{lacking}")


def _gpus_here(device: str) -> list[str]:
    """The GPUs that `device` means; none where it is not of this machine: a plan is for any."""
    from anedl.presets.gpus import gpus_of

    try:
        return gpus_of(device)
    except ConfigError:
        return []
