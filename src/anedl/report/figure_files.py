"""The figures of a run as files of their own, for papers and slides."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from anedl.files import write_bytes
from anedl.report.canvas import missing_extra
from anedl.report.letters import saved
from anedl.report.pictures import run_pictures
from anedl.report.run_folder import read_run

DOTS_PER_INCH = 200


def write_figures(
    run_folder: Path, folder: Path, kind: str = "pdf", say: Callable[[str], None] | None = None
) -> list[Path]:
    """Write `folder`/NAME.`kind` for every figure of a finished run and return the paths.

    `say` is told, in one sentence, of letters in the names that no font of this machine has.

    Raises:
        ConfigError: the run folder holds no run, or matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise missing_extra("matplotlib")
    pictures = run_pictures(read_run(run_folder))
    paths, missing = [], set()
    for picture in pictures:
        paths.append(folder / f"{picture.name}.{kind}")
        content, lacking = saved(
            picture.figure, format=kind, bbox_inches="tight", dpi=DOTS_PER_INCH
        )
        write_bytes(paths[-1], content)
        missing |= set(lacking)
    if missing and say is not None:
        say(
            f"no font on this machine has {' '.join(sorted(missing))}: the figures show boxes in "
            f"place of these letters; install a font that has them and write the figures again"
        )
    return paths
