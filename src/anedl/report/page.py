"""The pages: `report.html` of a run or of a comparison, one file that needs no network."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from anedl import __version__
from anedl.files import write_text
from anedl.report.canvas import missing_extra
from anedl.report.comparison import comparison_section, read_methods
from anedl.report.run_folder import read_run
from anedl.report.sections import run_section

if TYPE_CHECKING:
    from jinja2 import Template


def write_report(run_folder: Path, data_root: Path | None = None) -> Path:
    """Write `report.html` into a finished run's folder and return its path.

    `data_root` is where the data set lies, for the contact sheets; without it they are looked for
    where `anedl.data.sources.data_root` says, and left out with a note where there are none.
    """
    template = page_template()
    run = read_run(run_folder)
    path = run_folder / "report.html"
    title = f"{run.config['method']} on {run.config['setting']}, seed {run.config['seed']}"
    write_text(path, template.render(title=title, comparison=None, run=run_section(run, data_root)))
    return path


def write_comparison(
    folder: Path,
    runs: Mapping[str, Sequence[Path]],
    title: str,
    intro: str,
    data_root: Path | None = None,
) -> Path:
    """Write `folder/report.html`, which compares methods (name → run folders) seed by seed.

    The first method is the one the others are compared with, and its first seed is illustrated.
    `intro` is plain text that keeps its lines; an empty line parts its paragraphs.

    Raises:
        AnedlError: the methods were not run with the same seeds on the same splits.
    """
    template = page_template()
    methods = read_methods(runs)
    path = folder / "report.html"
    page = template.render(
        title=title,
        comparison={"intro": intro.split("\n\n"), **comparison_section(methods)},
        run=run_section(methods[0].runs[0], data_root),
    )
    write_text(path, page)
    return path


def page_template() -> "Template":
    """The template of `title`, `comparison` (or None) and `run`; it escapes everything.

    Asked for before anything is drawn, so that a missing package is told at once.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2") from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["base64"] = lambda data: b64encode(data).decode("ascii")
    source = resources.files("anedl.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source, globals={"version": __version__})
