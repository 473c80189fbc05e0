"""From a setting to the tensors of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.data.batches import ImageBatches
from anedl.data.digits import load_digits
from anedl.data.settings import get_setting
from anedl.engine.problem import load_problem
from anedl.errors import ConfigError

DIGITS = get_setting("digits")
CPU = torch.device("cpu")


def test_tensors_are_the_images_of_the_split():
    problem = load_problem(DIGITS, 2)
    data = load_digits()
    images = problem.training_images(CPU)
    split = problem.split
    assert images.labelled.shape == (18, 1, 8, 8)
    assert images.labelled.dtype == images.pool.dtype == torch.uint8
    for tensor, indices in ((images.labelled, split.labelled), (images.pool, split.pool)):
        for position in (0, 5, len(indices) - 1):
            expected = data.train.images[int(indices[position])]
            np.testing.assert_array_equal(tensor[position].permute(1, 2, 0).numpy(), expected)
    # Digits 0 to 5 are known and come first, so a known class is its own label.
    assert images.labels.tolist() == data.train.labels[split.labelled].tolist()
    validation, targets = problem.validation()
    assert len(validation) == 60
    assert targets.tolist() == data.train.labels[split.validation].tolist()
    test, test_targets = problem.test()
    assert len(test) == 600
    labels = data.train.labels[split.test]
    assert test_targets.tolist() == np.where(labels <= 5, labels, -1).tolist()
    pool_labels = data.train.labels[split.pool]
    assert problem.pool_truth().tolist() == np.where(pool_labels <= 5, pool_labels, -1).tolist()


def test_no_label_of_the_pool_is_read_for_training(problem):
    """Labels of pool images that would break any use of them."""

    class Guarded(np.ndarray):
        def __getitem__(self, key):
            assert not np.isin(problem.split.pool, np.asarray(key)).any(), "a pool label was read"
            return np.asarray(super().__getitem__(key))

    labels = problem.dataset.train.labels.copy().view(Guarded)
    train = replace(problem.dataset.train, labels=problem.dataset.train.labels)
    object.__setattr__(train, "labels", labels)
    dataset = replace(problem.dataset)
    object.__setattr__(dataset, "train", train)
    guarded = replace(problem, dataset=dataset)
    expected = problem.training_images(CPU)
    found = guarded.training_images(CPU)
    assert torch.equal(found.labels, expected.labels)
    guarded.validation()
    guarded.test()
    with pytest.raises(AssertionError, match="pool label"):
        guarded.pool_truth()


def test_a_smaller_pool_nests_and_is_another_split():
    whole = load_problem(DIGITS, 0).split
    small = load_problem(DIGITS, 0, pool_limit=50).split
    smaller = load_problem(DIGITS, 0, pool_limit=20).split
    assert len(small.pool) == 50
    assert set(smaller.pool) < set(small.pool) < set(whole.pool)
    assert (np.diff(small.pool) > 0).all()
    for name in ("labelled", "validation", "test"):
        np.testing.assert_array_equal(getattr(small, name), getattr(whole, name))
    assert small.digest != whole.digest
    known = np.isin(load_digits().train.labels[small.pool], range(6)).mean()
    assert 0.3 < known < 0.8, "a mixture still"


@pytest.mark.parametrize("limit", [0, -3, 10_000])
def test_a_pool_limit_must_fit(limit):
    with pytest.raises(ConfigError, match=f"pool limit {limit}: the pool has 1,119"):
        load_problem(DIGITS, 0, pool_limit=limit)


def test_the_development_problem():
    problem = load_problem(DIGITS, 0, development=True)
    assert problem.task.classes == problem.split.num_known == 4
    assert problem.split.development
    assert problem.task.top_m == 2
    assert problem.task.inlier_share == pytest.approx(0.41 * 4 / 6)
    _, targets = problem.test()
    assert set(targets.tolist()) == {-1, 0, 1, 2, 3}


def test_a_given_data_set_takes_the_place_of_the_files(tmp_path):
    data = load_digits()
    problem = load_problem(DIGITS, 0, root=tmp_path, dataset=data)
    assert problem.dataset is data


def test_images_in_files_are_decoded_when_they_are_looked_at(files_problem):
    problem = files_problem()
    for images, count in (
        (problem.validation()[0], 12),
        (problem.test()[0], 30),
        (problem.pool(), 60),
    ):
        assert isinstance(images, ImageBatches)
        assert len(images) == count
    position = 7
    path = problem.dataset.train.images.paths[problem.split.pool[position]]
    # 16 pixels: the middle of 18, to which the original is shrunk.
    shrunk = np.array(Image.open(path).resize((18, 18), Image.Resampling.BILINEAR))
    pool = torch.cat(list(problem.pool().batches(9)))
    np.testing.assert_array_equal(pool[position].permute(1, 2, 0).numpy(), shrunk[1:17, 1:17])
