"""Unknown images that look alike, found by their features: each group is perhaps a new class.

A group of nearly all unknown images is something else. A network that sees nothing it knows gives
much the same features whatever the image shows, so such images are closer to one another than those
of the whole pile without being of one kind: they could not be told apart, and that is what is said.

Features (N, D) are brought to length 1, because a network says what an image shows by the direction
of its features and how sure it is by their length. Their leading principal components go to HDBSCAN
(Campello, Moulavi and Sander 2013), which needs no number of clusters and leaves images that
resemble nothing else alone. Its time grows with the square of the number of images, so of very many
a fixed random sample is clustered, and every other image follows its nearest image of the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray
from anedl.errors import DataError
from anedl.triage.verdict import Triage

COMPONENTS = 24  # density means little in many dimensions
LARGEST_SAMPLE = 8_000
SMALLEST_CLUSTER = 5
BLOCK = 2_048  # images compared with the sample at a time
# Stray images bunch by chance; a group that is not clearly tighter than the whole pile is none.
CLEARLY_TIGHTER = 0.85
NEARLY_ALL = 0.8  # of the unknown: a group so large tells them from the known, not from one another
FAR_OUT = 3.0  # a member so many times farther from the middle than most is none

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Cluster:
    """Images of the pile that look alike; numbers count from 1, the largest cluster first.

    `members` are positions in the pile, the most typical first: that one is the `medoid`.
    `nearest_class` is the known class most of them were taken for. `spread` is the mean distance
    of the members from the medoid, where features have length 1. `unknown` is how many unknown
    images the pile has, those of this cluster among them.
    """

    number: int
    members: IntArray
    medoid: int
    nearest_class: str
    spread: float
    unknown: int

    @property
    def sentence(self) -> str:
        """What to tell a person."""
        size = len(self.members)
        if is_nearly_all(size, self.unknown):
            return (
                f"{size:,} of the {self.unknown:,} unknown images could not be told apart; they "
                f"may be of one kind or of many"
            )
        return f"{size:,} images look alike, perhaps a new class"


def is_nearly_all(size: int, unknown: int) -> bool:
    """Whether a cluster of that size is too much of the unknown images to be called one kind."""
    return size >= NEARLY_ALL * unknown


def cluster_unknown(
    triage: Triage, features: npt.NDArray[np.floating], smallest: int | None = None
) -> tuple[Triage, list[Cluster]]:
    """Cluster the unknown images; `features` (N, D) has a row for every image of the pile.

    Gives back the verdict with the clusters' numbers in it, and the clusters.
    """
    evidence = triage.evidence
    if features.ndim != 2 or len(features) != len(evidence):
        raise DataError(f"{len(evidence)} images need a row of features each, got {features.shape}")
    unknown = triage.where("unknown")
    labels, points = cluster_features(features[unknown], smallest, _spread(_directions(features)))
    found = []
    for label in range(labels.max(initial=-1) + 1):
        inside = np.flatnonzero(labels == label)
        order, spread = _by_typicality(points[inside])
        taken_for = np.bincount(evidence.first[unknown[inside]])
        nearest = evidence.class_names[int(taken_for.argmax())]
        found.append((unknown[inside[order]], nearest, spread))
    found.sort(key=lambda cluster: (-len(cluster[0]), cluster[2]))
    clusters = [
        Cluster(number, members, int(members[0]), nearest, spread, len(unknown))
        for number, (members, nearest, spread) in enumerate(found, start=1)
    ]
    return triage.with_clusters(numbers(clusters, len(evidence))), clusters


def numbers(clusters: Sequence[Cluster], count: int) -> IntArray:
    """Number of the cluster that each of `count` images is in, −1 for none."""
    result = np.full(count, -1, dtype=np.int64)
    for cluster in clusters:
        result[cluster.members] = cluster.number
    return result


def cluster_features(
    features: npt.NDArray[np.floating], smallest: int | None = None, spread: float | None = None
) -> tuple[IntArray, Array]:
    """Labels (N,) from 0 on, −1 for images left alone, and the (N, ≤ 24) points they rest on.

    A cluster has at least `smallest` images: one in a hundred, from 5 to 50, unless it is given.
    It is clearly tighter than `spread`, by default that of these images.
    """
    count = len(features)
    if smallest is None:
        smallest = min(50, max(SMALLEST_CLUSTER, count // 100))
    points = principal_components(features)
    spread = _spread(points) if spread is None else spread
    if count < 2 * smallest:
        return np.full(count, -1, dtype=np.int64), points
    if count <= LARGEST_SAMPLE:
        return _dense_groups(points, smallest, spread), points
    sample = np.sort(np.random.default_rng(0).choice(count, LARGEST_SAMPLE, replace=False))
    scaled = max(SMALLEST_CLUSTER, round(smallest * LARGEST_SAMPLE / count))
    labels = _dense_groups(points[sample], scaled, spread)[_nearest(points, points[sample])]
    return labels, points


def principal_components(features: npt.NDArray[np.floating]) -> Array:
    """Rows brought to length 1, then their coordinates (N, ≤ 24) along the widest directions."""
    rows = _directions(features)
    if not rows.size:
        return np.zeros((len(rows), 0), dtype=np.float32)
    rows -= rows.mean(axis=0)
    _, axes = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    widest: Array = axes[:, ::-1][:, :COMPONENTS].astype(np.float32)
    return rows @ widest


def _directions(features: npt.NDArray[np.floating]) -> Array:
    """Rows brought to length 1, a new array."""
    rows = np.array(features, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise DataError("features that are not finite cannot be clustered; train the model again")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    return rows


def _spread(points: Array) -> float:
    """Root of the mean squared distance from the mean."""
    return float(np.sqrt(points.var(axis=0).sum())) if points.size else 0.0


def _dense_groups(points: Array, smallest: int, spread: float) -> IntArray:
    from sklearn.cluster import HDBSCAN

    model = HDBSCAN(min_cluster_size=smallest, min_samples=min(smallest, 5), copy=True)
    several = _only_tight(points, model.fit(points).labels_, smallest, spread)
    if (several >= 0).mean() >= 0.5:
        return several
    # HDBSCAN takes one bunch apart rather than answer "one", so that is asked here.
    one = _only_tight(points, np.zeros(len(points), dtype=np.int64), smallest, spread)
    return one if (one >= 0).sum() > (several >= 0).sum() else several


def _only_tight(points: Array, labels: IntArray, smallest: int, spread: float) -> IntArray:
    """The clusters worth showing, numbered from 0 on again, without members far from the middle."""
    tight = np.full(len(labels), -1, dtype=np.int64)
    found = 0
    for label in range(labels.max() + 1):
        inside = np.flatnonzero(labels == label)
        distances = _distances(points[inside])
        usual = np.median(distances)
        inside = inside[distances <= FAR_OUT * usual]
        if usual <= CLEARLY_TIGHTER * spread and len(inside) >= smallest:
            tight[inside] = found
            found += 1
    return tight


def _distances(points: Array) -> Array:
    """Distances from the middle, which is the median so that strays do not move it."""
    distances: Array = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    return distances


def _nearest(points: Array, sample: Array) -> IntArray:
    """Position in `sample` of the nearest one to each point, a block of points at a time."""
    squares = (sample**2).sum(axis=1)
    blocks = [
        (squares - 2 * points[at : at + BLOCK] @ sample.T).argmin(axis=1)
        for at in range(0, len(points), BLOCK)
    ]
    return np.concatenate(blocks).astype(np.int64)


def _by_typicality(points: Array) -> tuple[IntArray, float]:
    """Order from the medoid, the member nearest to the middle, outwards; mean distance from it."""
    medoid = int(_distances(points).argmin())
    distances = np.linalg.norm(points - points[medoid], axis=1)
    distances[medoid] = -1.0  # first, also among images that are the same
    order = np.argsort(distances, kind="stable")
    return order, float(distances[order[1:]].mean()) if len(points) > 1 else 0.0
