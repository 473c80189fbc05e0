"""The pages: `report.html` of a run or of a comparison, one file that needs no network."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anedl import __version__
from anedl.files import write_text
from anedl.report import top
from anedl.report.canvas import missing_extra
from anedl.report.comparison import comparison_section, read_methods
from anedl.report.markup import Html
from anedl.report.run_folder import read_run
from anedl.report.sections import run_section

if TYPE_CHECKING:
    from jinja2 import Template

SCRIPTS = ("words", "slider", "plane", "sorting", "paper", "start", "start-run")
CONTENTS = (
    ("threshold", "Threshold"),
    ("plane", "Two kinds of doubt"),
    ("images", "Images"),
    ("detection", "Telling the unknown"),
    ("answers", "Right and wrong"),
    ("training", "How it learnt"),
    ("details", "How it was made"),
)


def write_report(run_folder: Path, data_root: Path | None = None) -> Path:
    """Write `report.html` into a finished run's folder and return its path.

    `data_root` is where the data set lies, for the images; without it they are looked for where
    `anedl.data.sources.data_root` says, and left out with a note where there are none.
    """
    template = page_template("report.html.j2", SCRIPTS, "anedl report")
    run = read_run(run_folder)
    path = run_folder / "report.html"
    page = template.render(
        title=top.title(run),
        contents=[("top", "At a glance"), *CONTENTS],
        comparison=None,
        run=run_section(run, data_root),
    )
    write_text(path, encodable(page))
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
    `intro` is plain text as for a terminal, see `paragraphs`.

    Raises:
        AnedlError: the methods were not run with the same seeds on the same splits.
    """
    template = page_template("report.html.j2", SCRIPTS, "anedl report")
    methods = read_methods(runs)
    path = folder / "report.html"
    page = template.render(
        title=title,
        contents=[("top", "At a glance"), ("means", "Means"), ("run", "One run"), *CONTENTS],
        comparison={
            "intro": paragraphs(intro),
            "shown": f"{methods[0].name}, seed {methods[0].seeds[0]}",
            **comparison_section(methods),
        },
        run=run_section(methods[0].runs[0], data_root, compared=len(methods) > 1),
    )
    write_text(path, encodable(page))
    return path


def page_template(name: str, scripts: Sequence[str], generator: str) -> "Template":
    """The template of a page, which escapes everything; `generator` is the command that writes it.

    Asked for before anything is drawn, so that a missing package is told at once.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2") from error
    if find_spec("matplotlib") is None:
        raise missing_extra("matplotlib")
    environment = Environment(
        loader=FunctionLoader(page_file),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"json_block": json_block, "tight": tight}
    styles, script = page_file("page.css"), page_script(scripts)
    # Nothing is fetched from anywhere, and only this very style and script are obeyed.
    policy = (
        f"default-src 'none'; img-src data:; style-src {hashed(styles)}; "
        f"script-src {hashed(script)}; base-uri 'none'; form-action 'none'"
    )
    fixed = {"styles": Html(styles), "script": Html(script), "policy": policy}
    said = {"version": __version__, "generator": generator}
    return environment.get_template(name, globals={**said, **fixed})


def page_file(name: str) -> str:
    """The text of a file of the page."""
    return resources.files("anedl.report").joinpath("page", name).read_text(encoding="utf-8")


def page_script(names: Sequence[str]) -> str:
    """The page's one script: its files one after the other, in a room of their own."""
    files = "\n".join(page_file(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{files}}})();'


def hashed(text: str) -> str:
    """The hash by which a content policy knows an inline style or script."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def json_block(document: Any) -> Html:
    """JSON as it may stand in a script element: nothing in it can end that or open another."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(text)


def paragraphs(text: str) -> list[tuple[str, bool]]:
    """The paragraphs of a text written for a terminal, and whether each is an item of a list.

    An empty line ends a paragraph. A line that begins with two spaces is an item, which goes on in
    lines that are indented deeper; the first line that is not indented ends it.
    """
    found: list[tuple[list[str], bool]] = []
    before = ""
    for line in text.splitlines():
        indented = line.startswith("  ")
        begins = indented and not line.startswith("   ")
        if not before.strip() or begins or indented != before.startswith("  "):
            found.append(([], indented))
        found[-1][0].append(line)
        before = line
    joined_lines = [(" ".join(" ".join(lines).split()), is_item) for lines, is_item in found]
    return [(words, is_item) for words, is_item in joined_lines if words]


MINUS = re.compile(r"(?<![\w./=-])-(?=\d)")


def tight(text: str) -> str:
    """The text with its per-cent signs held to their numbers, and with signs of minus."""
    return MINUS.sub("\N{MINUS SIGN}", text).replace(" %", "\N{NO-BREAK SPACE}%")


def encodable(page: str) -> str:
    """The page with what UTF-8 cannot hold (halves of characters in odd names) written out."""
    return page.encode("utf-8", "backslashreplace").decode("utf-8")
