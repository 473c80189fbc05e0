"""Train a method on a setting.

    anedl train digits
    anedl train cifar100-55/50 --method anedl --seed 1
    anedl train cifar100-55/50 --budget fast
    anedl train digits --method my/method.py:MyMethod
    anedl train cifar100-55/50 --dev --epochs 50 --labelled-views flip strong
    anedl train --config runs/digits/anedl-plus-seed0/config.json --out runs/again
    anedl train cifar100-55/50 --resume

Options of the engine and of the chosen method follow; `--method NAME --help` shows another's.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from anedl.cli.options import add_options, given_options
from anedl.errors import AnedlError, ConfigError
from anedl.methods.default import DEFAULT_METHOD

if TYPE_CHECKING:
    from anedl.engine.spec import RunSpec
    from anedl.methods.catalogue import Entry


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare what to run; the method's own options depend on which method is named."""
    # Listing a hundred flags before the description would bury it.
    parser.usage = "anedl train SETTING [--method METHOD] [--seed N] [options]"
    parser.add_argument(
        "setting",
        nargs="?",
        help="see `anedl settings`; also DATASET-K/n, K known classes with n labels each",
    )
    # No defaults here: what is given beside --config must be told from what is not.
    parser.add_argument(
        "--method",
        help=f"see `anedl methods`, or path/to/file.py:ClassName (default: {DEFAULT_METHOD})",
    )
    parser.add_argument(
        "--budget", choices=["full", "fast"],
        help="length of the run: that of the authors' code (full, the default), or a quarter of it "
        "with every schedule in proportion (fast; digits: a half)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="seed of the run (default: 0)")
    parser.add_argument(
        "--fold", type=int, help="which labelled draw (default: the one that belongs to the seed)"
    )
    parser.add_argument(
        "--dev", action="store_true", help="the development split: some known classes play unknown"
    )
    parser.add_argument(
        "--pool-limit", type=int, metavar="N", help="use N pool images only, for a quick trial"
    )
    parser.add_argument("--config", type=Path, help="repeat the run that wrote this config.json")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/SETTING/METHOD-seedN)")
    parser.add_argument(
        "--resume", action="store_true", help="go on where an earlier call was cut off"
    )
    add_surroundings(parser)
    parser.add_argument(
        "--workers", type=int, metavar="N",
        help="processes that read image files, 0 for none (default: one a core, at most 8)",
    )  # fmt: skip
    parser.add_argument("--wandb", action="store_true", help="log to Weights & Biases too")
    parser.add_argument("--no-report", action="store_true", help="write no report.html at the end")

    from anedl.engine.config import TrainConfig
    from anedl.engine.spec import check_entry
    from anedl.methods.catalogue import get_method

    named, _ = _only_method().parse_known_args(words)
    method = named.method or DEFAULT_METHOD
    entry = get_method(method)
    check_entry(entry)
    add_options(parser, TrainConfig, "options of the engine", "train", entry.engine)
    add_options(parser, entry.method.config_type, f"options of {method}", "options", entry.options)


def add_surroundings(
    parser: argparse.ArgumentParser, devices: str = "cpu, cuda, cuda:1 … (default: auto)"
) -> None:
    """Declare where to compute and where the data are."""
    parser.add_argument("--device", default="auto", help=devices)
    parser.add_argument("--data", type=Path, metavar="ROOT", help="folder of the data sets")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def spec_of(words: list[str]) -> "RunSpec":
    """The run that `anedl train` makes with these words; ends the program as it would, if it would.

    Raises:
        ConfigError: there is no such run.
    """
    parser = argparse.ArgumentParser("anedl train", allow_abbrev=False)
    add_arguments(parser, words)
    return _spec(parser.parse_args(words))


def _spec(arguments: argparse.Namespace, entry: "Entry | None" = None) -> "RunSpec":
    """What the arguments ask to train, with the method's `entry` where a run began with one."""
    from anedl.engine.spec import make_spec, read_spec_to_train

    train_options, options = given_options(arguments, "train"), given_options(arguments, "options")
    if arguments.config is not None:
        choices = ("setting", "method", "budget", "seed", "fold", "dev", "pool_limit")
        given = [name for name in choices if getattr(arguments, name) not in (None, False)]
        if given or train_options or options:
            raise ConfigError(
                f"--config repeats a run as it was: give no setting or option beside it "
                f"(given: {', '.join([*given, *train_options, *options])})"
            )
        return read_spec_to_train(arguments.config)
    if arguments.setting is None:
        raise ConfigError(
            "which setting? `anedl settings` lists them; `anedl train digits` is quick"
        )
    return make_spec(
        arguments.setting, arguments.method or DEFAULT_METHOD, arguments.seed or 0,
        arguments.fold, arguments.dev, arguments.pool_limit, train_options, options,
        arguments.budget or "full", entry,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Train, then say what came out and where it is."""
    from anedl.engine.spec import default_folder, method_begun_with
    from anedl.engine.train import Surroundings, train

    spec = _spec(arguments)
    folder = arguments.out or default_folder(
        spec.setting, spec.method, spec.seed, spec.development, spec.budget
    )
    if arguments.out is None and arguments.config is not None and arguments.resume:
        folder = arguments.config.parent  # the run that is to go on
    if arguments.resume and arguments.config is None:
        # The file of a user's method may have changed since; a run goes on with what it began.
        spec = _spec(arguments, method_begun_with(folder, spec.method))
    surroundings = Surroundings(
        device=arguments.device, data_root=arguments.data, resume=arguments.resume,
        quiet=arguments.quiet, wandb=arguments.wandb, workers=arguments.workers,
    )  # fmt: skip
    results = train(spec, folder, surroundings)
    print_results(results)
    print(f"run folder: {folder}")
    if not arguments.no_report:
        from anedl.report.page import write_report

        write_if_possible(lambda: write_report(folder, arguments.data))
    return 0


def print_results(results: dict[str, object]) -> None:
    """Error and AUROC of the last model and of the best by validation."""
    for key, name in (("last", "last epoch"), ("best_val", "best validation")):
        entry = results.get(key)
        if not isinstance(entry, dict):
            continue
        test = entry["test"]
        line = f"{name:<16} epoch {entry['epoch'] + 1:>3}   test error {100 * test['error']:.2f} %"
        if test["by_score"]:
            line += f"   AUROC {100 * test['by_score']['score']['auroc']:.2f} %"
        print(line)


def write_if_possible(write: Callable[[], Path]) -> None:
    """Write a report and say where; a run without the drawing packages is still a run."""
    try:
        print(f"report: {write()}")
    except AnedlError as error:
        print(f"no report: {error}", file=sys.stderr)


def _only_method() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--method", nargs="?")
    return parser
