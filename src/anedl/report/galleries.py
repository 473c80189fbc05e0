"""Images worth a look: the surest, the doubtful, the strangest, the worst mistakes, clusters."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from anedl.report.album import Album
from anedl.report.contact_sheet import (
    Truth,
    most_doubtful,
    most_outlier_like,
    surest_of_each_class,
    truth_of,
)
from anedl.report.images import Key
from anedl.report.judged import Judged, Pile, cut_words
from anedl.report.run_folder import Array, Run
from anedl.triage.clusters import is_nearly_all

LOOSE_IMAGES = 30  # in a gallery that is not sorted by class
MISTAKES = 20  # of each kind
MOST_OF_CLASSES = 400  # images in the gallery that is
FEW_CLASSES = 16  # get a line each
MOST_IN_CLUSTER = 12
MOST_CLUSTERS = 20


@dataclass(frozen=True)
class Tile:
    """An image in a gallery: where it is in the album, and the words below it."""

    image: str
    name: str
    words: tuple[str, ...]
    truth: Truth

    @property
    def spoken(self) -> str:
        """Everything about it, for those who do not see it."""
        verdict = "" if self.truth == "not known" else f", {VERDICTS[self.truth]}"
        return f"{self.name}: {', '.join(self.words)}{verdict}"


@dataclass(frozen=True)
class Strip:
    """Tiles under a label, which may be empty."""

    label: str
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Gallery:
    """Strips under a title and a caption."""

    title: str
    caption: str
    strips: Sequence[Strip]

    @property
    def is_crowded(self) -> bool:
        """Whether its strips stand side by side."""
        return len(self.strips) > FEW_CLASSES and all(len(s.tiles) <= 5 for s in self.strips)


VERDICTS: dict[Truth, str] = {
    "right": "rightly predicted",
    "wrong": "in truth another class",
    "outlier": "in truth an outlier",
}


class Shelf:
    """Makes tiles of a run's images; what the album cannot take is left out."""

    def __init__(self, run: Run, pile: Pile, judged: Judged, album: Album) -> None:
        self.classes, self.cut_words = run.class_names, cut_words(run, judged, pile)
        self.own_score, self.pile_word = run.own_score_label, "pile" if run.is_own else "pool"
        self.pile, self.judged, self.album = pile, judged, album

    def of_pile(
        self, positions: Iterable[int], values: Array, with_class: bool = True
    ) -> list[Tile]:
        """Images of the pile, each with its class and one of `values`, (N,)."""
        write = number_writer(values)
        pile = self.pile
        tiles: list[Tile] = []
        for i in positions:
            predicted = int(pile.predicted[i])
            truth = truth_of(predicted, None if pile.truth is None else int(pile.truth[i]))
            words = ([pile.class_of(i)] if with_class else []) + [write(float(values[i]))]
            self._take(tiles, pile.keys[i], pile.names[i], words, truth)
        return tiles

    def of_judged(self, positions: Iterable[int], words: Callable[[int], list[str]]) -> list[Tile]:
        """Images of known truth, which their words tell."""
        judged = self.judged
        tiles: list[Tile] = []
        for i in positions:
            target = int(judged.targets[i])
            name = "an outlier" if target < 0 else f"an image of {self.classes[target]}"
            self._take(tiles, judged.keys[i], name, words(i), "not known")
        return tiles

    def _take(
        self, tiles: list[Tile], key: Key | None, name: str, words: list[str], truth: Truth
    ) -> None:
        if (image := self.album.add(key)) is not None:
            tiles.append(Tile(image, name, tuple(words), truth))


def make_galleries(run: Run, pile: Pile, judged: Judged, album: Album) -> list[Gallery]:
    """Every gallery that has an image to show."""
    if album.images is None:
        return []
    shelf = Shelf(run, pile, judged, album)
    made = [surest(shelf), doubtful(shelf), strangest(shelf), *mistakes(shelf)]
    if pile.cluster is not None:
        made.append(clusters(shelf, pile.cluster))
    return [gallery for gallery in made if any(strip.tiles for strip in gallery.strips)]


def surest(shelf: Shelf) -> Gallery:
    """The surest images of each class."""
    pile, classes = shelf.pile, shelf.classes
    count = 10 if len(classes) <= FEW_CLASSES else max(3, min(5, MOST_OF_CLASSES // len(classes)))
    picked = surest_of_each_class(pile.sureness, pile.predicted, len(classes), count)
    # Of images that were kept out of the pool nobody knows how sure the model is.
    known = [positions[np.isfinite(pile.sureness[positions])] for positions in picked]
    strips = [
        Strip(name, shelf.of_pile(positions, pile.sureness, with_class=False))
        for name, positions in zip(classes, known, strict=True)
    ][: MOST_OF_CLASSES // count]
    left_out = len(classes) - len(strips)
    return Gallery(
        "The surest of each class",
        f"Images of the {shelf.pile_word} by predicted class, with the highest {pile.sure_word}."
        + (f" {left_out} more classes are left out." if left_out else ""),
        strips,
    )


def doubtful(shelf: Shelf) -> Gallery:
    """Accepted images of the least certain class: those a person should look at first."""
    pile = shelf.pile
    open_cases = pile.accepted & ~pile.decided
    positions, copies = without_copies(
        most_doubtful(pile.probability, open_cases, len(pile)), pile.group, LOOSE_IMAGES
    )
    return Gallery(
        "The most doubtful",
        "They pass as known, but of which class is least sure: the probability of the likeliest. "
        f"A person should look at these first.{_without_decided(pile)}{_without_copies(copies)}",
        [Strip("", shelf.of_pile(positions, pile.probability))],
    )


def strangest(shelf: Shelf) -> Gallery:
    """The lowest scores of the pile."""
    pile = shelf.pile
    left = np.flatnonzero(~pile.decided)
    order = left[most_outlier_like(pile.score[left], len(left))]
    positions, copies = without_copies(order, pile.group, LOOSE_IMAGES)
    return Gallery(
        "The most unknown",
        f"Images of the {shelf.pile_word} with the lowest {shelf.own_score}, each with the class "
        f"it would have been given.{_without_decided(pile)}{_without_copies(copies)}",
        [Strip("", shelf.of_pile(positions, pile.score))],
    )


def _without_decided(pile: Pile) -> str:
    return " Images that a person has decided about are left out." if pile.decided.any() else ""


def without_copies(order: Array, group: Array | None, count: int) -> tuple[list[int], int]:
    """The first `count` positions but for near-duplicates of earlier ones, and how many those are.

    A second copy would tell a person nothing new, and take the place of an image that does.
    """
    taken: list[int] = []
    met: set[int] = set()
    copies = 0
    for i in order:
        if len(taken) == count:
            break
        number = -1 if group is None else int(group[i])
        if number in met:
            copies += 1
            continue
        taken.append(int(i))
        if number >= 0:
            met.add(number)
    return taken, copies


def _without_copies(copies: int) -> str:
    return " Of near-duplicates only the first is shown." if copies else ""


def mistakes(shelf: Shelf) -> list[Gallery]:
    """Where the truth is known: outliers trusted most, classes mixed up, inliers turned away."""
    judged, classes = shelf.judged, shelf.classes
    confidence = judged.probabilities.max(axis=1)
    outlier, wrong = ~judged.inlier, judged.inlier & (judged.predicted != judged.targets)
    kinds = [
        ("outliers trusted most", outlier & judged.accepted, -judged.score, judged.score),
        (
            "known, taken for another class",
            wrong & judged.accepted,
            -confidence,
            confidence,
        ),
        ("known, and turned away", judged.inlier & ~judged.accepted, judged.score, judged.score),
    ]
    strips = []
    for label, chosen, rank, values in kinds:
        order = np.argsort(rank, kind="stable")
        positions = order[chosen[order]][:MISTAKES]
        write = number_writer(values)

        def words(
            i: int, write: Callable[[float], str] = write, values: Array = values
        ) -> list[str]:
            target = int(judged.targets[i])
            truth = "outlier" if target < 0 else classes[target]
            answer = [f"→ {classes[judged.predicted[i]]}"] if judged.accepted[i] else []
            return [truth, *answer, write(float(values[i]))]

        if len(positions):
            strips.append(Strip(label, shelf.of_judged(positions, words)))
    return [
        Gallery(
            "The worst mistakes",
            f"Of the {len(judged.targets):,} {judged.what}, truth → answer with the score, or with "
            "the probability where classes were mixed up."
            + (f" Turned away: with a score below {shelf.cut_words}." if shelf.cut_words else ""),
            strips,
        )
    ]


def clusters(shelf: Shelf, cluster: Array) -> Gallery:
    """Unknown images that look alike, the largest group first, members nearest the cut last."""
    pile, strips = shelf.pile, []
    numbers, sizes = np.unique(cluster[cluster >= 0], return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    unknown = int((~pile.accepted).sum())
    for number, size in zip(numbers[order][:MOST_CLUSTERS], sizes[order], strict=False):
        members = np.flatnonzero(cluster == number)
        spread = np.linspace(0, len(members) - 1, min(MOST_IN_CLUSTER, len(members)))
        chosen = members[np.argsort(pile.score[members], kind="stable")][spread.round().astype(int)]
        word = "not told apart" if is_nearly_all(size, unknown) else "alike"
        label = f"{size:,} {word} (cluster {number})"
        strips.append(Strip(label, shelf.of_pile(chosen, pile.score, with_class=False)))
    more = len(numbers) - len(strips)
    return Gallery(
        "Clusters of the unknown",
        _about_clusters(sizes, unknown)
        + _called_unknown(pile.decided[cluster >= 0])
        + " A sample of each, from the lowest score to the highest."
        + (f" {more} more clusters are left out." if more else ""),
        strips,
    )


def _about_clusters(sizes: Array, unknown: int) -> str:
    """What the clusters are: a new class each perhaps, or all that the model could not part."""
    if any(is_nearly_all(size, unknown) for size in sizes):
        return (
            "Nearly all unknown images are one cluster: the model could not tell them apart, and "
            "they may be of one kind or of many."
        )
    return "Unknown images that look alike to the model: perhaps a new class."


def _called_unknown(decided: Array) -> str:
    """How many images of the clusters people, not the model, called unknown."""
    count = int(decided.sum())
    if not count:
        return ""
    some = "All" if count == len(decided) else f"{count:,}"
    return (
        f" {some} of these {len(decided):,} images are here because a person called them unknown."
    )


def number_writer(values: Array) -> Callable[[float], str]:
    """How to write these numbers below an image: about three digits, all to the same place."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0))
    digits = 2 if largest < 10 else 1 if largest < 100 else 0
    # "z": what rounds to nothing has no sign.
    return lambda value: f"{value:z.{digits}f}".replace("-", "\N{MINUS SIGN}")
