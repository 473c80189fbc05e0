"""The verdict for labelling tools: tasks for Label Studio, a data set for FiftyOne.

Accepted images and those for review carry their likeliest class, unknown ones a choice of its own,
`unknown` (in brackets should a class be named so).

Both tools read JSON and know no file names but UTF-8; a file that is named otherwise is left out.
Tried with Label Studio 1.23.2 and FiftyOne 1.22.1.
"""

import mimetypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from anedl.data.dataset import IntArray
from anedl.files import write_json, write_text
from anedl.triage.table import Cell, table_rows
from anedl.triage.verdict import Triage, one_line

LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves the files of its own machine
NOT_UTF8 = "has a name that is not UTF-8"
NO_IMAGE_NAME = "has a name that FiftyOne does not take for an image's"
BACKSLASH = "has a backslash in its path, which FiftyOne takes for a slash"
FULLWIDTH_DOLLAR = "\uff04"
CHOICES, IMAGE = "class", "image"  # the names of the two parts of the labelling interface

Files = dict[str, Callable[[Path], None]]
LeftOut = list[tuple[int, str]]


def unknown_choice(class_names: Sequence[str]) -> str:
    """A word for unknown images that is no class."""
    word = "unknown"
    while word in class_names:
        word = f"({word})"
    return word


def label_studio_files(
    triage: Triage,
    source_paths: Sequence[Path],
    chosen: IntArray,
    url_prefix: str,
    document_root: Path,
) -> tuple[Files, LeftOut]:
    """Tasks to import, each with one prediction, and the labelling interface for the project.

    The score of a prediction is the probability of the class, or for an unknown image 1 − p: Label
    Studio can sort by it and have the least certain labelled first.
    """
    rows = list(table_rows(triage))
    choices = [*triage.evidence.class_names, unknown_choice(triage.evidence.class_names)]
    root = document_root.absolute()
    tasks: list[dict[str, Any]] = []
    left_out: LeftOut = []
    for index in chosen.tolist():
        path = _path(source_paths[index])
        if path is None:
            left_out.append((index, NOT_UTF8))
            continue
        if not path.is_relative_to(root):
            left_out.append((index, f"does not lie below {root}"))
            continue
        label, is_unknown = _label(triage, index, choices)
        evidence = triage.evidence
        certainty = 1 - evidence.p_value[index] if is_unknown else evidence.probability[index]
        data = {"image": url_prefix + quote(path.relative_to(root).as_posix())}
        tasks.append(
            {
                "data": data | _present(rows[index]),
                "predictions": [
                    {
                        "model_version": "anedl",
                        "score": float(certainty),
                        "result": [
                            {
                                "id": f"verdict-{index}",
                                "type": "choices",
                                "from_name": CHOICES,
                                "to_name": IMAGE,
                                "value": {"choices": [one_line(label)]},
                            }
                        ],
                    }
                ],
            }
        )
    files: Files = {
        "tasks.json": partial(write_json, value=tasks),
        "interface.xml": partial(write_text, text=_interface(choices)),
    }
    return files, left_out


def fiftyone_files(
    triage: Triage, source_paths: Sequence[Path], chosen: IntArray
) -> tuple[Files, LeftOut]:
    """FiftyOne's image classification format: targets in `labels.json`, paths in `data.json`.

    Read by what `fiftyone_call` says. Nothing is copied; every column of the table becomes an
    attribute of the label. FiftyOne ends an import at the first file whose name is none of an
    image, so such files are left out.
    """
    rows = list(table_rows(triage))
    classes = [*triage.evidence.class_names, unknown_choice(triage.evidence.class_names)]
    number = {name: i for i, name in enumerate(classes)}
    labels: dict[str, dict[str, Any]] = {}
    paths: dict[str, str] = {}
    left_out: LeftOut = []
    types = mimetypes.MimeTypes()  # Python's own, so that the machine's table changes nothing
    types.add_type("image/webp", ".webp")
    for index in chosen.tolist():
        path = _path(source_paths[index])
        if path is None:
            left_out.append((index, NOT_UTF8))
            continue
        if not (types.guess_type(path.name)[0] or "").startswith("image/"):
            left_out.append((index, NO_IMAGE_NAME))
            continue
        if "\\" in str(path):
            left_out.append((index, BACKSLASH))
            continue
        label, is_unknown = _label(triage, index, classes)
        key = f"{index:08}"  # FiftyOne takes what follows a dot in a key for a file suffix
        paths[key] = str(path)
        labels[key] = {"label": number[label], "attributes": _present(rows[index])}
        if not is_unknown:
            labels[key]["confidence"] = float(triage.evidence.probability[index])
    files: Files = {
        "labels.json": partial(write_json, value={"classes": classes, "labels": labels}),
        "data.json": partial(write_json, value=paths),
    }
    return files, left_out


def fiftyone_call(out: Path) -> str:
    """The Python that reads these files; without `data_path` FiftyOne 1.22 does not find them."""
    return (
        f"fo.Dataset.from_dir(dataset_dir={str(out)!r}, "
        "dataset_type=fo.types.FiftyOneImageClassificationDataset, "
        'data_path="data.json", label_field="anedl", dynamic=True)'
    )


def _path(source: Path) -> Path | None:
    """The path from the root, or none if it cannot be written in UTF-8."""
    path = source.absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return None
    return path


def _label(triage: Triage, index: int, choices: Sequence[str]) -> tuple[str, bool]:
    """The choice for an image, and whether it is the last one, that for unknown images."""
    if triage.state[index] == "unknown":
        return choices[-1], True
    return triage.evidence.class_of(index), False


def _present(row: dict[str, Cell]) -> dict[str, Cell]:
    """The row without what is not there; `class` would clash with the tools' own label."""
    cells = {name: cell for name, cell in row.items() if cell is not None and name != "class"}
    return {**cells, "likeliest_class": row["class"]}


def _interface(choices: Sequence[str]) -> str:
    """The choices stand above the image, which may fill the screen."""
    listed = "\n".join(f"    <Choice {_choice(one_line(choice))}/>" for choice in choices)
    return (
        '<View>\n  <Text name="reason" value="$reason"/>\n'
        f'  <Choices name="{CHOICES}" toName="{IMAGE}" choice="single" required="true" '
        f'showInline="true">\n{listed}\n  </Choices>\n'
        f'  <Image name="{IMAGE}" value="$image"/>\n</View>\n'
    )


def _choice(name: str) -> str:
    """Its attributes; Label Studio would put a task's data in the place of a `$`."""
    if "$" not in name:
        return f"value={quoteattr(name)}"
    return f"value={quoteattr(name.replace('$', FULLWIDTH_DOLLAR))} alias={quoteattr(name)}"
