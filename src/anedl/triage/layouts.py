"""The sorted pile in the form that someone wants to work with; the source files stay untouched.

- `folders`: copies in `accept/<class>/`, `review/` and `unknown/cluster-01/` …
- `links`: the same with symbolic links.
- `label-studio`: `tasks.json` with the verdicts as predictions, and the labelling interface they
  fit, `interface.xml`.
- `fiftyone`: `labels.json` and `data.json` for `fo.types.FiftyOneImageClassificationDataset`.

A folder with anything else in it is never written to. One that an earlier call began is gone on
with: copies and links are only ever added, never replaced, and the JSON forms are written anew.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from anedl.data.dataset import IntArray
from anedl.errors import DataError, unknown_name
from anedl.files import write_json
from anedl.triage.exports import LOCAL_FILES, fiftyone_files, label_studio_files
from anedl.triage.placing import Plan, place_files, plan_places
from anedl.triage.verdict import STATES, State, Triage

Form = Literal["folders", "links", "label-studio", "fiftyone"]
FORMS: tuple[Form, ...] = get_args(Form)
MARKER = ".anedl-layout.json"

Progress = Callable[[int, int | None], None]
"""Called with the images done so far and their total."""

Objection = Callable[[int], str | None]
"""Why the file of an image, by its number, should not be laid out, if it should not."""


@dataclass(frozen=True)
class Layout:
    """What was laid out: images `placed` now, `already` there, and names `left_out` with why.

    `counts` are those of both, by state.
    """

    out: Path
    placed: int
    already: int
    left_out: list[tuple[str, str]]
    counts: dict[State, int]


def lay_out(
    triage: Triage,
    source_paths: Sequence[Path],
    out: Path,
    form: str,
    *,
    states: Sequence[State] = STATES,
    url_prefix: str = LOCAL_FILES,
    document_root: Path = Path("/"),
    objection: Objection = lambda index: None,
    progress: Progress | None = None,
) -> Layout:
    """Lay the images in `states` out in the folder `out`; `source_paths` has a file for each image.

    Label Studio reads the images from `url_prefix` and their paths below `document_root`, which are
    its own settings for local files. An image to which there is an `objection` is left out.

    Raises:
        DataError: `out` holds something else than this layout.
    """
    if form not in FORMS:
        raise unknown_name("form", form, FORMS)
    if len(source_paths) != len(triage):
        raise DataError(f"{len(triage)} images need a path each, got {len(source_paths)}")
    chosen = triage.where(*states)
    if form in ("folders", "links"):
        plan = plan_places(triage, source_paths, chosen)
        _claim(out, form, _digest(plan))
        already, left_out = place_files(plan, out, form == "links", objection, progress)
        return _layout(triage, out, chosen, already, left_out)
    refused = []
    for done, index in enumerate(chosen.tolist(), 1):
        if (why := objection(index)) is not None:
            refused.append((index, why))
        if progress is not None:
            progress(done, len(chosen))
    fit_for_it = np.setdiff1d(chosen, [index for index, _ in refused])
    if form == "label-studio":
        files, left_out = label_studio_files(
            triage, source_paths, fit_for_it, url_prefix, document_root
        )
    else:
        files, left_out = fiftyone_files(triage, source_paths, fit_for_it)
    left_out = sorted([*refused, *left_out])
    if len(left_out) == len(chosen) > 0:
        # As where a drive is not mounted: what was written before is better than nothing.
        index, why = left_out[0]
        raise DataError(
            f"none of the {len(chosen):,} images can be laid out; the first, "
            f"{triage.evidence.names[index]}: {why}"
        )
    _claim(out, form, None)
    for name, write in files.items():
        write(out / name)
    return _layout(triage, out, chosen, 0, left_out)


def _layout(
    triage: Triage, out: Path, chosen: IntArray, already: int, left_out: list[tuple[int, str]]
) -> Layout:
    laid = np.setdiff1d(chosen, [index for index, _ in left_out]).tolist()
    counts = dict.fromkeys(STATES, 0) | Counter(triage.state[index] for index in laid)
    names = [(triage.evidence.names[index], reason) for index, reason in left_out]
    return Layout(out, len(laid) - already, already, names, counts)


def _claim(out: Path, form: str, plan: str | None) -> None:
    """Make the folder ours, or find that it is: by the file that an earlier call left in it."""
    marker = out / MARKER
    mine = {"form": form, "plan": plan}
    if marker.is_file() and not marker.is_symlink():
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found != mine:
            raise DataError(
                f"{out}: holds another layout (other images, verdicts or form); remove it, or name "
                "another folder"
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: is not an empty folder; name one that is empty or does not exist")
    write_json(marker, mine)


def _digest(plan: Plan) -> str:
    text = json.dumps([(str(place.target), str(place.source)) for place in plan])
    return hashlib.sha256(text.encode()).hexdigest()
