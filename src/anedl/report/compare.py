"""`anedl compare`: several runs side by side, as a page and as a few lines of Markdown."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from anedl.errors import AnedlError
from anedl.files import write_text
from anedl.intake.names import shown
from anedl.report.canvas import series_look
from anedl.report.comparison import (
    MEASURES,
    comparison_section,
    difference_table,
    listed,
    mean_table,
    measures_of,
)
from anedl.report.drawing import NAMED
from anedl.report.fairness import judge_fairness, split_rows
from anedl.report.markdown import markdown, markdown_table
from anedl.report.overlay import curve_pictures, roc_picture
from anedl.report.page import encodable, page_template
from anedl.report.piles import piles_section
from anedl.report.recipes import Recipes, differing_entries
from anedl.report.run_folder import Run
from anedl.report.sections import duration

GENERATOR = "anedl compare"
SCRIPTS = ("words", "sorting", "paper", "start")
HEAD = 4096  # bytes at the start of a page that say what wrote it
KEY_LINE = 2.5  # pixels: the width of a line in the key
CONTENTS = (
    ("top", "At a glance"),
    ("splits", "Splits"),
    ("means", "Means"),
    ("detection", "Telling the unknown"),
    ("piles", "The piles"),
    ("training", "How they learnt"),
    ("differs", "What differs"),
    ("runs", "The runs"),
)


@dataclass(frozen=True)
class KeyEntry:
    """How a recipe is drawn, for the key of the figures."""

    name: str
    colour: str
    dash: str
    auroc: str


@dataclass(frozen=True)
class RunRow:
    """A run in the list of all; `report` is its report's address from the page, if it has one."""

    name: str
    report: str | None
    recipe: str
    seed: int
    figures: list[float | None]
    steps: int
    seconds: float
    time: str


def write_compare(recipes: Recipes, path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        AnedlError: there is something else at `path`.
    """
    template = page_template("compare.html.j2", SCRIPTS, GENERATOR)
    check_target(path)
    groups = recipes.groups
    comparison = comparison_section(groups)
    key = key_of(recipes)
    roc = roc_picture(groups, {entry.name: entry.auroc for entry in key})
    piles, entries = piles_section(recipes), differing_entries(groups)
    absent = {"piles": piles is None, "differs": not entries}
    page = template.render(
        title=title(recipes),
        contents=[entry for entry in CONTENTS if not absent.get(entry[0], False)],
        lede=lede(recipes),
        fairness=judge_fairness(recipes),
        splits=split_rows(recipes),
        recipes=[group.name for group in groups],
        comparison=comparison,
        own=any(run.is_own for run in recipes.runs),
        replicated=any(len(group.runs) > 1 for group in groups),
        key=key,
        roc=roc,
        piles=piles,
        curves=curve_pictures(groups),
        entries=entries,
        runs=run_rows(recipes, comparison["measures"], path.parent),
        made=made_with(recipes.runs),
    )
    write_text(path, encodable(page))
    return path


def check_target(path: Path) -> None:
    """Refuse to write over anything but an earlier page of this kind.

    Raises:
        AnedlError: there is something else.
    """
    if not path.exists():
        return
    if path.is_file():
        with path.open("rb") as file:
            if f'content="{GENERATOR}"'.encode() in file.read(HEAD):
                return
    raise AnedlError(
        f"{path}: is there already and is no page of `anedl compare`, so it is left alone; name "
        f"another file with -o, or remove it"
    )


def title(recipes: Recipes) -> str:
    """What the page is called."""
    groups = len(recipes.groups)
    if groups == 1:
        return f"{len(recipes.runs)} runs of {recipes.groups[0].name}"
    if groups == len(recipes.runs):
        return f"{groups} runs side by side"
    return f"{groups} recipes in {len(recipes.runs)} runs"


def lede(recipes: Recipes) -> str:
    """What is compared, in a sentence or two."""
    names = ("own images" if run.is_own else shown(run.config["setting"]) for run in recipes.runs)
    words = " and ".join(dict.fromkeys(names))
    seeds = {run.config["seed"] for run in recipes.runs}
    text = f"On {words}, seed{'s' * (len(seeds) > 1)} {listed(list(seeds))}"
    if len(recipes.groups) == len(recipes.runs):
        return f"{text}. Every run is another recipe, so no figure has a spread over seeds."
    return f"{text}. Runs that differ by seed alone are one recipe, and its seeds the replicates."


def key_of(recipes: Recipes) -> list[KeyEntry]:
    """The key of the figures, with each recipe's AUROC."""
    entries = []
    for number, (name, (_, area)) in enumerate(mean_table(recipes.groups, ["AUROC, own score"])):
        colour, dash = series_look(number)
        strokes = " ".join(f"{KEY_LINE * part:g}" for part in dash)
        entries.append(KeyEntry(name, NAMED[colour.lower()], strokes, area))
    return entries


def run_rows(recipes: Recipes, measures: list[str], page_folder: Path) -> list[RunRow]:
    """Every run with its figures, and the way from the page to its own report."""
    return [
        RunRow(
            recipes.names[run.folder],
            _address(run, page_folder),
            group.name,
            run.config["seed"],
            [MEASURES[name](run) for name in measures],
            run.results["steps"],
            run.results["seconds"],
            duration(run.results["seconds"]),
        )
        for group in recipes.groups
        for run in group.runs
    ]


def made_with(runs: list[Run]) -> str:
    """Versions and devices of all runs."""
    found = {
        key: ", ".join(sorted({shown(str(run.results[key])) for run in runs}))
        for key in ("anedl", "torch", "device")
    }
    return f"anedl {found['anedl']} and torch {found['torch']} on {found['device']}"


def _address(run: Run, page_folder: Path) -> str | None:
    report = run.folder.resolve() / "report.html"
    if not report.is_file():
        return None
    # Quoted as bytes, so that every name is an address and none of them a scheme.
    return quote(os.fsencode(os.path.relpath(report, page_folder.resolve())))


def compare_text(recipes: Recipes) -> str:
    """The comparison as Markdown: what to know first, the means, the paired differences."""
    groups = recipes.groups
    fairness, measures = judge_fairness(recipes), measures_of(groups)
    parts = [*map(markdown, fairness.agreed)]
    parts += [f"**Warning:** {markdown(text)}" for text in fairness.warnings]
    head = [f"{name} (%)" for name in measures]
    means = [(markdown(name), *cells) for name, cells in mean_table(groups, measures)]
    parts.append(markdown_table(["recipe", "seeds", *head], means))
    differences = [
        (markdown(f"{groups[0].name} − {name}"), *cells)
        for name, cells in difference_table(groups, measures)
    ]
    if differences:
        head = [f"{name} (points)" for name in measures]
        parts.append(markdown_table(["difference, 95 % interval", "seeds", *head], differences))
    return "\n\n".join(parts)
