"""The `anedl` command: finds the subcommand's module, loads only that, and prints errors plainly.

Each subcommand is one module with `add_arguments(parser, words)` and `run(arguments) -> exit
status`; `words` are what the user typed after its name. It is imported only when called, so
`anedl --help` answers before torch could be loaded.
"""

import argparse
import errno
import importlib
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TextIO

from anedl import __version__
from anedl.errors import AnedlError, Notice, unknown_name

# Subcommand → what it does in one line; the module of the same name holds it.
COMMANDS = {
    "demo": "train on real handwritten digits and write an illustrated report (minutes, no GPU)",
    "fit": "learn from your own labelled images and pile, and sort the pile",
    "example": "sort a real pile of digits with `fit` and compare with the truth (minutes, no GPU)",
    "train": "train a method on a setting",
    "evaluate": "test a trained run again",
    "predict": "judge new images: class, probability, unknown or not",
    "calibrate": "set a finished model's threshold anew, for another camera or place",
    "export": "write a run's model as ONNX, and its model card",
    "triage": "lay the sorted pile out: folders, links, Label Studio, FiftyOne",
    "review": "settle the doubtful images of the pile by hand, on a local page",
    "report": "write the illustrated report of a run",
    "compare": "set finished runs side by side: splits, means, curves",
    "reproduce": "run the paper's experiments beside their published scores",
    "ledger": "set finished runs beside the published numbers",
    "data": "fetch, verify and locate the data sets",
    "settings": "list the benchmark settings with their counts",
    "methods": "list the training methods, or every option of one",
    "doctor": "say what is installed, what is missing and which devices there are",
}

# Called again, they find what they have done and do the rest.
GO_ON_BY_THEMSELVES = {"demo", "reproduce", "triage"}

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C
TERMINATED = 143  # and by SIGTERM, where a run has heard it and saved


def build_parser() -> argparse.ArgumentParser:
    """Build the outer parser: it knows the names of the subcommands, not their options."""
    lines = "\n".join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="anedl",
        usage="anedl COMMAND [options]",
        description="Open-set semi-supervised learning: a classifier, an outlier detector "
        "and a sorted pile from a few labels.",
        epilog=f"commands:\n{lines}\n\n`anedl COMMAND --help` explains one of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"anedl {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


class _Parser(argparse.ArgumentParser):
    """Tells the options that somebody who mistyped one may have meant."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse, or print what is not known and exit."""
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return arguments

    def _meant(self, unknown: Sequence[str]) -> str:
        options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        known = list(self._option_string_actions)
        near = [name for word in options for name in get_close_matches(word, known, 2)]
        return f" (did you mean {' or '.join(dict.fromkeys(near))}?)" if near else ""


@contextmanager
def _notices_in_a_line() -> Iterator[None]:
    """Let notices look as errors do; other warnings are shown as ever."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_or_print(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, Notice):
                print(f"anedl: {message}", file=sys.stderr)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.simplefilter("default", Notice)
        warnings.showwarning = show_or_print
        yield


@_notices_in_a_line()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0 done, 1 a told error, 2 wrong usage."""
    for output in (sys.stdout, sys.stderr):
        # A terminal that cannot show a Greek letter gets a question mark instead of an exception.
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="replace")
    parser = build_parser()
    outer = parser.parse_args(argv)
    if outer.command is None:
        parser.print_help()
        return 2
    goes_on = ""
    again = "; call it again to go on" if outer.command in GO_ON_BY_THEMSELVES else ""
    try:
        if outer.command not in COMMANDS:
            raise unknown_name("command", outer.command, COMMANDS)
        module = importlib.import_module(f"anedl.cli.{outer.command}")
        inner = _Parser(
            prog=f"anedl {outer.command}",
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(inner, outer.rest)
        arguments = inner.parse_args(outer.rest)
        if hasattr(arguments, "resume"):
            goes_on = "; --resume goes on once there is room"
            again = "; the same command with --resume goes on"
        status: int = module.run(arguments)
        return status
    except AnedlError as error:
        print(f"anedl: {error}", file=sys.stderr)
        return 2 if outer.command not in COMMANDS else 1
    except KeyboardInterrupt:
        print(f"anedl: interrupted{again}", file=sys.stderr)
        return INTERRUPTED
    except SystemExit as ended:
        if ended.code != TERMINATED:
            raise
        print(f"anedl: interrupted{again}", file=sys.stderr)
        return TERMINATED
    except BrokenPipeError:
        # The reader (`| head`) has left; what it wanted, it has.
        sys.stderr.close()
        return 0
    except UnicodeEncodeError as error:
        if sys.getfilesystemencoding() == "utf-8":
            raise  # not for its names of files
        print(
            f"anedl: this terminal's encoding ({error.encoding}) cannot name the files here, such "
            f"as {error.object.encode('ascii', 'backslashreplace').decode()}: set PYTHONUTF8=1",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        # A full disk, a folder that may not be written: the system's own words say it best.
        print(f"anedl: {error}{goes_on if error.errno in NO_ROOM else ''}", file=sys.stderr)
        return 1
