"""Sort a real pile from start to end, and set the outcome beside the truth (minutes, no GPU).

Writes folders of handwritten digits as image files: 52 labelled ones each of zero to five, and a
pile of everything else with six to nine among them, copies, foreign pictures and broken files. Then
it does what `anedl fit` does, and compares `triage.csv` with what the files truly are.
"""

import argparse
import shlex
from pathlib import Path

from anedl.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare where to, and the seed."""
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("runs/example"), metavar="DIR",
        help="where to (default: runs/example)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of folders and run (default: 0)")
    parser.add_argument("--resume", action="store_true", help="go on where a call was cut off")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def run(arguments: argparse.Namespace) -> int:
    """Write the folders, fit, and compare."""
    from anedl.files import write_json
    from anedl.fit.flow import Wishes, fit
    from anedl.presets.example import CHOICES, compare_with_truth, describe
    from anedl.presets.folders import digits_folders, write_digits_folders

    out = arguments.folder
    folders = digits_folders(out)
    # The truth is written last: where it is, the folders are whole.
    if not (arguments.resume and folders.truth.exists()):
        _require_free(out, arguments.seed)
        write_digits_folders(out, seed=arguments.seed)
        print(f"wrote {folders.labelled} and {folders.pile}")
    wishes = Wishes(
        seed=arguments.seed, resume=arguments.resume, quiet=arguments.quiet, device="cpu", **CHOICES
    )
    fitted = fit(folders.labelled, folders.pile, out / "run", wishes, print)
    verdicts = compare_with_truth(fitted.folder, folders.truth)
    write_json(out / "verdicts.json", verdicts.to_json())
    print(f"\nthe sorted pile beside the truth ({folders.truth}, which nothing above has read):")
    print(describe(verdicts, fitted.folder))
    print(f"\nlook at {fitted.folder / 'report.html'} and {fitted.folder / 'clusters'}, then try")
    where = shlex.quote(str(fitted.folder))
    print(f"  anedl triage {where} --as folders")
    print(f"  anedl review {where}")
    return 0


def _require_free(out: Path, seed: int) -> None:
    """Refuse a folder with an example in it, and say how to go on from there.

    Raises:
        ConfigError: an example was finished, cut off or only begun to be written here.
    """
    from anedl.presets.folders import digits_folders

    folders = digits_folders(out)
    if not (folders.pile.exists() or folders.labelled.exists()):
        return
    another = "name another folder: anedl example DIR"
    if (out / "verdicts.json").exists():
        raise ConfigError(
            f"{out}: holds a finished example; look at {out / 'run' / 'report.html'}, or remove "
            f"the folder to run it again, or {another}"
        )
    if folders.truth.exists():
        words = ["anedl", "example", str(out), *(["--seed", str(seed)] if seed else []), "--resume"]
        raise ConfigError(
            f"{out}: holds an example that was cut off; go on with it: {shlex.join(words)}, or "
            f"{another}"
        )
    raise ConfigError(
        f"{out}: holds {folders.labelled.name}/ or {folders.pile.name}/, perhaps of an example "
        f"that was cut off while they were written; remove them to run it here, or {another}"
    )
