"""Numbers that others have published, each with where it stands; read from `published.json`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anedl.errors import AnedlError
from anedl.evaluation.summary import MeanStd
from anedl.options import convert, option_types

NOT_AVAILABLE = "not available"  # published as a picture only
MEASURES = ("error", "auroc")
NAMES = {"auroc": "AUROC", "error": "error"}  # of the measures, for people


@dataclass(frozen=True)
class Published:
    """One published result, in per cent; contradicting ones all stand in the file.

    `setting` and `method` are our names where we have them. `options` are those of our method that
    make the published `variant`, empty for the method itself and None where no options make it.
    `score` is our score that the published AUROC used. `comparable` names the measures that mean
    the same as ours. `unavailable` names those that exist as a picture only; in the file their
    value is "not available".
    """

    setting: str
    method: str
    error: float | None
    error_std: float | None
    auroc: float | None
    auroc_std: float | None
    what: str
    variant: str | None
    options: dict[str, Any] | None
    score: str
    comparable: tuple[str, ...]
    unavailable: tuple[str, ...]
    source: str
    note: str

    @property
    def label(self) -> str:
        """What kind of number it is, in a few words."""
        return self.what if self.variant is None else f"{self.what}: {self.variant}"


def comparable_figure(item: Published | None, measure: str) -> MeanStd | None:
    """A published number; None where there is none that means the same as ours."""
    if item is None or measure not in item.comparable:
        return None
    value = item.error if measure == "error" else item.auroc
    std = item.error_std if measure == "error" else item.auroc_std
    return None if value is None else MeanStd(value, std)


def published_file(results: Path) -> Path:
    """The published numbers beside the results, else those that come with the project.

    An installed package holds a copy; a checkout has them in its own results.
    """
    here = Path(__file__).resolve()
    places = (
        results / "published.json",
        here.with_name("published.json"),
        here.parents[3] / "results" / "published.json",
    )
    return next((place for place in places if place.is_file()), places[0])


def read_published(path: Path) -> list[Published]:
    """Every published number of a file, in its order; none where there is no file.

    Raises:
        AnedlError: the file is not such a list; the message says which item is wrong.
    """
    if not path.is_file():
        return []
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AnedlError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(records, list):
        raise AnedlError(f"{path}: should hold a list of published numbers")
    return [_read_item(path, number, record) for number, record in enumerate(records, 1)]


def matching(
    published: Sequence[Published], setting: str, method: str, options: dict[str, Any]
) -> list[Published]:
    """The published numbers of a method on a setting, with these options and no others."""
    name = published_name(method)
    return [
        item
        for item in published
        if item.setting == setting and item.method == name and item.options == options
    ]


def published_name(method: str) -> str:
    """The name that a method of ours has among the published ones."""
    # Both readings of ANEDL, the paper's and the release's, stand for the published one.
    return "anedl" if method == "anedl-released" else method


def _read_item(path: Path, number: int, record: Any) -> Published:
    try:
        values = dict(record)
        values["unavailable"] = [key for key in MEASURES if values[key] == NOT_AVAILABLE]
        values |= dict.fromkeys(values["unavailable"])
        options = values["options"]
        if not isinstance(options, dict | None):
            raise AnedlError(f"options: {options!r} is not an object")
        checked = {
            name: convert(name, values[name], wanted)
            for name, wanted in option_types(Published).items()
            if name != "options"
        }
        return Published(**checked, options=options)
    except (AnedlError, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise AnedlError(f"{path}: item {number} is not a published number: {reason}") from error
