"""What people have said of images of the pile, as a run was given it: `decided.json`.

A run is trained with the decisions there were when it began. They stay beside it, so that it can go
on, be judged again and be understood, whatever is decided later.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anedl.errors import DataError
from anedl.files import write_json

DECIDED_FILE = "decided.json"


@dataclass(frozen=True)
class Decided:
    """Names of pile images with what was said of them.

    `classes` are the images that were given a class, `unknown` those called of no known class.
    `gone` were decided about but are no longer readable images of the pile, `changed` show another
    picture under the same name; neither is used. `files` say where the decisions were read.
    """

    classes: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.classes) + len(self.unknown)

    @property
    def answers(self) -> dict[str, str | None]:
        """The class of every image decided about, None for unknown."""
        return {**self.classes, **dict.fromkeys(self.unknown)}

    def to_json(self) -> dict[str, Any]:
        """Plain texts and lists."""
        return asdict(self)


def write_decided(folder: Path, decided: Decided) -> None:
    """Put the decisions beside the run; without any there is no such file."""
    if decided.files:
        write_json(folder / DECIDED_FILE, decided.to_json())
    else:
        (folder / DECIDED_FILE).unlink(missing_ok=True)


def read_decided(folder: Path) -> Decided | None:
    """The decisions that a run was given, None where it was given none.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / DECIDED_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return Decided(
            {str(name): str(label) for name, label in record["classes"].items()},
            *(tuple(map(str, record[part])) for part in ("unknown", "gone", "changed", "files")),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is not the decisions that a run was given ({error!r})") from error
