"""Groups that were put into the features are found again, and nothing where there is nothing."""

import numpy as np
import pytest

from anedl.errors import DataError
from anedl.triage import clusters as module
from anedl.triage.clusters import cluster_features, cluster_unknown, principal_components
from anedl.triage.verdict import Rules, gather, judge


def blobs(sizes, noise, seed=0, dimension=64, width=0.05):
    """Tight bunches in random directions, and points in all directions; the truth is −1 there."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    centres = rng.normal(size=(len(sizes), dimension))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    points = centres[truth] + width * rng.normal(size=(len(truth), dimension)) / 4
    points = np.concatenate([points, rng.normal(size=(noise, dimension))])
    # Lengths say how sure the network is, and must not matter.
    points *= rng.uniform(1, 20, size=(len(points), 1))
    truth = np.append(truth, np.full(noise, -1))
    order = rng.permutation(len(truth))
    return points[order].astype(np.float32), truth[order]


def unknown_triage(count, first, known=0):
    probabilities = np.eye(3)[np.append(first, np.zeros(known, int))]
    p_value = np.append(np.full(count, 0.01), np.full(known, 0.5))
    zeros = np.zeros(count + known)
    return judge(
        gather(
            [f"{i}" for i in range(count + known)], probabilities, zeros, p_value, zeros, zeros,
            zeros - 1, ("cat", "dog", "fox"),
        ),
        Rules(),
    )  # fmt: skip


def assert_found(labels, truth, share=0.95):
    """Each true group is one cluster, nearly whole and nearly pure."""
    for group in range(truth.max() + 1):
        values, counts = np.unique(labels[truth == group], return_counts=True)
        label = values[counts.argmax()]
        assert label >= 0
        assert counts.max() >= share * (truth == group).sum()
        assert (truth[labels == label] == group).mean() >= share


def test_blobs_are_found_and_noise_is_left_alone():
    points, truth = blobs([150, 80, 30], noise=60)
    labels, _ = cluster_features(points)
    assert labels.max() == 2
    assert_found(labels, truth)
    assert (labels[truth == -1] == -1).mean() > 0.9


def test_one_new_class_among_strays_is_found():
    points, truth = blobs([120], noise=40)
    labels, _ = cluster_features(points)
    assert labels.max() == 0
    assert_found(labels, truth, 0.9)


def test_noise_alone_has_no_cluster():
    points, _ = blobs([], noise=200)
    labels, _ = cluster_features(points)
    assert (labels == -1).mean() > 0.9


def test_very_many_are_sampled_and_the_rest_follow(monkeypatch):
    monkeypatch.setattr(module, "LARGEST_SAMPLE", 400)
    monkeypatch.setattr(module, "BLOCK", 97)
    points, truth = blobs([900, 500, 200], noise=200)
    labels, _ = cluster_features(points)
    assert_found(labels, truth)
    again, _ = cluster_features(points)
    np.testing.assert_array_equal(labels, again)


@pytest.mark.parametrize("count", [0, 1, 9])
def test_few_images_are_no_cluster(count):
    labels, _ = cluster_features(np.ones((count, 8), np.float32))
    assert labels.shape == (count,)
    assert (labels == -1).all()


def test_images_without_features_do_no_harm():
    labels, _ = cluster_features(np.zeros((40, 8), np.float32))
    assert labels.shape == (40,)
    with pytest.raises(DataError, match="not finite"):
        cluster_features(np.full((40, 8), np.inf))


def test_components_keep_the_distances_of_directions():
    points, _ = blobs([30, 30], noise=0, dimension=16)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    mapped = principal_components(points)
    for i, j in ((0, 1), (5, 40), (17, 3)):
        expected = np.linalg.norm(unit[i] - unit[j])
        assert np.linalg.norm(mapped[i] - mapped[j]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_clusters_of_a_triage_speak_of_the_pile():
    points, truth = blobs([30, 120], noise=30)
    first = np.where(truth == 1, 2, 1)
    known = 50
    triage = unknown_triage(len(points), first, known)
    everything = np.concatenate([points, np.tile(points[:2], (known // 2, 1))])
    triage, clusters = cluster_unknown(triage, everything)
    assert [cluster.number for cluster in clusters] == [1, 2]
    assert len(clusters[0].members) > len(clusters[1].members)
    assert [cluster.nearest_class for cluster in clusters] == ["fox", "dog"]
    assert (
        clusters[0].sentence == f"{len(clusters[0].members)} images look alike, perhaps a new class"
    )
    for cluster in clusters:
        assert cluster.medoid == cluster.members[0]
        assert (triage.cluster[cluster.members] == cluster.number).all()
    assert (triage.cluster[-known:] == -1).all(), "known images are not clustered"
    # Members go outwards from the medoid.
    mapped = principal_components(points)
    away = np.linalg.norm(mapped[clusters[0].members] - mapped[clusters[0].medoid], axis=1)
    assert (np.diff(away) >= -1e-6).all()
    assert clusters[0].spread == pytest.approx(away[1:].mean(), rel=1e-4)


def test_a_single_new_class_is_seen_against_the_known_ones():
    """No stray image to tell it from: the rest of the pile shows that these look alike."""
    unknown, _ = blobs([100], noise=0, seed=1)
    known, _ = blobs([60, 60, 60], noise=0, seed=2)
    triage = unknown_triage(len(unknown), np.zeros(len(unknown), int), len(known))
    _, clusters = cluster_unknown(triage, np.concatenate([unknown, known]))
    assert len(clusters) == 1
    assert len(clusters[0].members) >= 90


def test_nearly_all_of_the_unknown_are_not_called_a_new_class():
    """Low evidence alone makes images closer than those of the pile are, whatever they show."""
    known, _ = blobs([60, 60, 60], noise=0, seed=2)
    for strays, sentence in (
        (0, "100 of the 100 unknown images could not be told apart; they may be of one kind or of "
            "many"),
        (60, "100 images look alike, perhaps a new class"),
    ):  # fmt: skip
        unknown, _ = blobs([100], noise=strays, seed=1)
        triage = unknown_triage(len(unknown), np.zeros(len(unknown), int), len(known))
        _, clusters = cluster_unknown(triage, np.concatenate([unknown, known]))
        assert [cluster.sentence for cluster in clusters] == [sentence]


def test_features_must_fit_the_pile():
    with pytest.raises(DataError, match="3 images need a row"):
        cluster_unknown(unknown_triage(3, np.zeros(3, int)), np.zeros((2, 4)))
