"""A run that has begun keeps its images, their sizes and their roles to its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from anedl.data.protocol import Split
from anedl.data.split_file import read_split
from anedl.engine.spec import read_spec
from anedl.errors import ConfigError, DataError
from anedl.intake.cache import open_cache
from anedl.intake.findings import read_skipped
from anedl.intake.fitted import level_of, near_distance_of
from anedl.intake.listing import Item
from anedl.intake.names import shown
from anedl.intake.photographs import HEIC_SUFFIXES, RAW_SUFFIXES

# Of a run from before such files were listed as images: it did without them.
UNLISTED = "it is a photograph that could not be read when the run was begun"


NOTHING: Mapping[str, object] = MappingProxyType({})


def has_begun(run: Path) -> bool:
    """Whether some of its training has."""
    return any((folder / "split.json").exists() for folder in (run, run / "supervised"))


def unread_to_the_end(run: Path, items: Sequence[Item]) -> dict[Path, str]:
    """Which files a run that has begun did not read, and why: read now, they would be new images.

    Raises:
        ConfigError: some that it read are not among `items`, or there are new ones.
    """
    try:
        entries = open_cache(run / "cache").entries
    except DataError:  # deleted: the list of files that were not used is left
        reasons = {(entry.labelled, entry.name): entry.reason for entry in read_skipped(run)}
        found = ((item, reasons.get((item.label is not None, item.name))) for item in items)
        return {item.path: reason for item, reason in found if reason is not None}
    before = {(entry.item.label, entry.item.name): entry.reason for entry in entries}
    now = {(item.label, item.name): item for item in items}
    read = [key for key, reason in before.items() if not reason]
    if gone := [name for label, name in read if (label, name) not in now]:
        raise ConfigError(
            f"{run}: this run was begun on other images: {len(gone):,} of its {len(read):,} are "
            f"not there, the first is {shown(gone[0])}; restore them, or choose another folder"
        )
    unlisted = HEIC_SUFFIXES | RAW_SUFFIXES
    before |= {
        key: UNLISTED
        for key, item in now.items()
        if key not in before and item.path.suffix.lower() in unlisted
    }
    if new := [name for label, name in now if (label, name) not in before]:
        raise ConfigError(
            f"{run}: this run was begun on other images: {shown(new[0])} is new; take it away "
            f"again, or choose another folder"
        )
    return {item.path: before[key] for key, item in now.items() if before[key]}


def require_same_frames(run: Path, side: int, augmentation: str) -> None:
    """Refuse to decode the images of a run, if it has begun, in another size.

    Raises:
        ConfigError: says which options it was begun with.
    """
    for folder in (run, run / "supervised"):
        if (folder / "config.json").exists():
            terms = read_spec(folder / "config.json", tell=False).terms
            if (terms.image_size, terms.augmentation) != (side, augmentation):
                raise ConfigError(
                    f"{run}: this run was begun with --image-size {terms.image_size} "
                    f"--augmentation {terms.augmentation}; give these, or choose another folder"
                )
            return


def require_same_roles(folder: Path, split: Split, asked: Mapping[str, object] = NOTHING) -> None:
    """Refuse to go on with a run in `folder`, if there is one, that gave its images other roles.

    `asked` are the options now, by name, that decide about the roles; the error names those of
    which it is known that the run had others.

    Raises:
        ConfigError: it was begun on other images, or they were dealt out in another way.
    """
    written = folder / "split.json"
    if not written.exists() or read_split(written) == split:
        return
    had = _had(folder)
    others = [
        f"{name} {had[name]} then, {now} now"
        for name, now in asked.items()
        if name in had and had[name] != now
    ]
    why = (
        f"with other options ({', '.join(others)})"
        if others
        else "on other images, or with another seed, target, --near-distance or number of folds"
    )
    raise ConfigError(
        f"{folder}: this run was begun {why}; restore what has changed, or choose another folder"
    )


def _had(folder: Path) -> dict[str, object]:
    """What is recorded of the options that a run was begun with; `folder` may be a part of it."""
    had: dict[str, object] = {"--seed": read_spec(folder / "config.json", tell=False).seed}
    run = folder if (folder / "intake.json").is_file() else folder.parent
    had["--near-distance"] = near_distance_of(run)
    if (level := level_of(run)) is not None:
        had["--target-inlier-loss"] = level
    return had
