"""Views drawn from those that a frozen trunk has seen."""

import numpy as np
import pytest
import torch

from anedl.data.features import DrawnViews, FeatureBank, slots_of
from anedl.views import View

COPIES, IMAGES = 3, 400


@pytest.fixture
def features():
    """Whose every row says which image and which slot it is of, (IMAGES, 7, 2) float16."""
    image, slot = torch.meshgrid(
        torch.arange(IMAGES), torch.arange(1 + 2 * COPIES), indexing="ij"
    )  # fmt: skip
    return torch.stack([image, slot], dim=-1).half()


def test_every_slot_is_of_one_view():
    views = slots_of(2)
    assert views == [View.PLAIN, View.WEAK, View.WEAK, View.STRONG, View.STRONG]


@pytest.mark.parametrize(
    ("view", "slots"),
    [(View.PLAIN, {0}), (View.WEAK, {1, 2, 3}), (View.FLIP, {1, 2, 3}), (View.STRONG, {4, 5, 6})],
)
def test_a_view_is_drawn_among_its_own(features, view, slots):
    drawn = DrawnViews(COPIES)(features, view, 0, 5, 2)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn[:, 0], torch.arange(IMAGES).float()), "each image has its own"
    found = drawn[:, 1].long()
    assert set(found.tolist()) == slots
    # Each as often as the others: 133 times expected, 9.4 the deviation.
    counts = torch.bincount(found)[sorted(slots)]
    assert (counts - IMAGES / len(slots)).abs().max() < 45


def test_what_is_drawn_depends_on_step_and_slot_alone(features):
    draw = DrawnViews(COPIES)
    first = draw(features, View.WEAK, 3, torch.tensor(8), 1)
    assert torch.equal(draw(features, View.WEAK, 3, 8, 1), first)
    assert torch.equal(draw(features[:50], View.WEAK, 3, 8, 1), first[:50])
    for other in ((4, 8, 1), (3, 9, 1), (3, 8, 2)):
        assert not torch.equal(draw(features, View.WEAK, *other), first)


def test_a_bank_gives_images_by_their_indices(features):
    bank = FeatureBank(features[:, 0].float(), features)
    assert bank.copies == COPIES
    indices = np.array([7, 3])
    assert bank.plain_of(indices)[:, 0].tolist() == [7, 3]
    assert bank.views_of(indices).shape == (2, 7, 2)
