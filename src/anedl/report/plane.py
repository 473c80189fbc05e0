"""Two kinds of doubt: a plane where every point is an image of the pile.

Epistemic uncertainty is what more labels could take away (the image is strange to the model);
aleatoric is what none could (it is between classes).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anedl.data.dataset import IntArray
from anedl.report.album import Album
from anedl.report.axis import Axis
from anedl.report.judged import Pile
from anedl.report.markup import Html, joined

MOST_POINTS = 360
WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 820.0, 460.0, 84.0, 60.0, 10.0
# A shape for each kind of point, so that no one needs the colour: circle, triangle, diamond.
SHAPES = {
    "inlier": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
    "outlier": "M0 -5.6L5.2 4H-5.2Z",
    "review": "M0 -5.6L5.6 0L0 5.6L-5.6 0Z",
}
OF_STATE = {"accept": "inlier", "review": "review", "unknown": "outlier"}


@dataclass(frozen=True)
class Plane:
    """The picture, what its shapes mean (shape, words), and how many images it shows."""

    picture: Html
    key: list[tuple[Html, str]]
    points: int


def sample(kinds: Sequence[str], most: int = MOST_POINTS) -> IntArray:
    """Positions of at most so many images, of each kind as many as it is large, evenly spread."""
    if len(kinds) <= most:
        return np.arange(len(kinds))
    named = np.array(kinds)
    chosen = []
    for kind, count in _shares(Counter(kinds), most).items():
        members = np.flatnonzero(named == kind)
        chosen.append(members[np.linspace(0, len(members) - 1, count).round().astype(np.int64)])
    return np.unique(np.concatenate(chosen))


def _shares(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """How many of each kind to show, `most` together: none is lost, none has more than it is."""
    images = sum(sizes.values())
    shares = {kind: max(1, most * size // images) for kind, size in sizes.items()}
    # Rounding down leaves fewer points over than there are kinds: the most hurt get one each.
    hurt = sorted(sizes, key=lambda kind: shares[kind] - most * sizes[kind] / images)
    for kind in hurt[: max(0, most - sum(shares.values()))]:
        shares[kind] += 1
    # A rare kind that was not lost may have made one too many.
    shares[max(shares, key=shares.__getitem__)] -= max(0, sum(shares.values()) - most)
    return shares


def kinds_of(pile: Pile) -> tuple[list[str], dict[str, str]]:
    """The kind of every image, by verdict or by truth, and the words for each kind."""
    if pile.state is not None:
        words = {"inlier": "accepted", "review": "for review", "outlier": "unknown"}
        return [OF_STATE[state] for state in pile.state], words
    if pile.truth is not None:
        words = {"inlier": "inlier, in truth", "outlier": "outlier, in truth"}
        return ["inlier" if truth >= 0 else "outlier" for truth in pile.truth], words
    words = {"inlier": "above the threshold", "outlier": "below the threshold"}
    return ["inlier" if accepted else "outlier" for accepted in pile.accepted], words


def make_plane(pile: Pile, album: Album) -> Plane | None:
    """The plane of a pile; None where its model has no such uncertainties."""
    if pile.epistemic is None or pile.aleatoric is None or not len(pile):
        return None
    kinds, words = kinds_of(pile)
    chosen = sample(kinds)
    across, up = pile.aleatoric[chosen], pile.epistemic[chosen]
    horizontal = _axis(across, LEFT, WIDTH - EDGE)
    vertical = _axis(up, HEIGHT - BOTTOM, EDGE)
    points = []
    for i in chosen:
        name = album.add(pile.keys[i])
        label = (
            f"{pile.names[i]}: {words[kinds[i]]}, {pile.likeness(i)}, "
            f"epistemic {pile.epistemic[i]:.3g}, "
            f"aleatoric {pile.aleatoric[i]:.3g}"
        )
        points.append(
            Html('<path class="point {}" transform="translate({:.1f} {:.1f})" d="{}"{}>'
                   "<title>{}</title></path>").fill(
                kinds[i], horizontal.place(pile.aleatoric[i]), vertical.place(pile.epistemic[i]),
                SHAPES[kinds[i]],
                Html(' data-image="{}"').fill(name) if name else "", label)
        )  # fmt: skip
    picture = Html(
        '<svg class="plane" viewBox="0 0 {:.0f} {:.0f}" role="group" aria-label="{}">{}{}</svg>'
    ).fill(
        WIDTH, HEIGHT,
        f"Epistemic against aleatoric uncertainty of {len(chosen):,} images of the pile; "
        "arrow keys go from image to image.",
        _frame(horizontal, vertical), joined(points),
    )  # fmt: skip
    drawn = Counter(kinds[i] for i in chosen)
    key = [
        (_sign(kind), f"{_of_all(drawn[kind], kinds.count(kind))} {text}")
        for kind, text in words.items()
    ]
    return Plane(picture, key, len(chosen))


def _of_all(drawn: int, images: int) -> str:
    """How many of a kind are drawn, and of how many where some are not."""
    return f"{drawn:,}" if drawn == images else f"{drawn:,} of {images:,}"


def _sign(kind: str) -> Html:
    return Html(
        '<svg class="sign" viewBox="-7 -7 14 14" aria-hidden="true"><path class="point {}" d="{}"/>'
        "</svg>"
    ).fill(kind, SHAPES[kind])


def _axis(values: np.ndarray, start: float, end: float) -> Axis:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    room = 0.03 * (high - low) or 0.5
    return Axis(low - room, high + room, start, end)


def _frame(horizontal: Axis, vertical: Axis) -> Html:
    left, right, floor, top = horizontal.start, horizontal.end, vertical.start, vertical.end
    parts = [
        Html('<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
               '<text x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>').fill(
            at, top, floor, floor + 20, label)
        for at, label in horizontal.ticks()
    ]  # fmt: skip
    parts += [
        Html('<line class="grid" x1="{1}" x2="{2}" y1="{0:.1f}" y2="{0:.1f}"/>'
               '<text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>').fill(
            at, left, right, left - 8, at + 4, label)
        for at, label in vertical.ticks()
    ]  # fmt: skip
    parts.append(
        Html('<text class="name" x="{}" y="{}" text-anchor="middle">aleatoric: between classes'
               "</text>").fill((left + right) / 2, floor + 48)
    )  # fmt: skip
    parts.append(
        Html('<text class="name" transform="translate(16 {}) rotate(-90)" text-anchor="middle">'
               "epistemic: strange to the model</text>").fill((floor + top) / 2)
    )  # fmt: skip
    return joined(parts)
