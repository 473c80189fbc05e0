"""The figures of a run as files of their own, for papers and slides."""

from importlib.util import find_spec
from pathlib import Path

from anedl.report.canvas import missing_extra
from anedl.report.pictures import run_pictures
from anedl.report.run_folder import read_run

DOTS_PER_INCH = 200


def write_figures(run_folder: Path, folder: Path, kind: str = "pdf") -> list[Path]:
    """Write `folder`/NAME.`kind` for every figure of a finished run and return the paths.

    Raises:
        ConfigError: the run folder holds no run, or matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise missing_extra("matplotlib")
    pictures = run_pictures(read_run(run_folder))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for picture in pictures:
        paths.append(folder / f"{picture.name}.{kind}")
        picture.figure.savefig(paths[-1], bbox_inches="tight", dpi=DOTS_PER_INCH)
    return paths
