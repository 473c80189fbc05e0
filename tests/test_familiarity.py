"""What is familiar: against a computation by singular values, and what must not matter."""

import numpy as np
import pytest
import torch

from anedl.errors import AnedlError
from anedl.familiarity import Familiarity

GENERATOR = torch.Generator().manual_seed(0)
SPREAD = torch.linspace(3.0, 0.1, 12)
LABELLED = 2 + SPREAD * torch.randn((200, 12), generator=GENERATOR)
NEW = 2 + SPREAD * torch.randn((50, 12), generator=GENERATOR)


def by_singular_values(labelled, new, lively):
    """The residual is what the `lively` first right singular vectors leave of a centred image."""
    labelled, new = (features.double().numpy() for features in (labelled, new))
    centre = labelled.mean(0)
    axes = np.linalg.svd(labelled - centre)[2][:lively]
    centred = new - centre
    residual = centred - centred @ axes.T @ axes
    return -np.linalg.norm(residual, axis=1) / np.linalg.norm(new, axis=1)


@pytest.mark.parametrize(("count", "lively"), [(200, 6), (13, 6), (9, 4), (4, 2), (2, 1)])
def test_it_is_the_share_beyond_the_liveliest_directions(count, lively):
    """Half of the twelve, or half as many as there are images where these are fewer."""
    found = Familiarity.of(LABELLED[:count]).score(NEW)
    expected = by_singular_values(LABELLED[:count], NEW, lively)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_what_moves_in_still_directions_is_unfamiliar():
    familiarity = Familiarity.of(LABELLED)
    lowest = familiarity.score(NEW).min()
    along, across = NEW.clone(), NEW.clone()
    along[:, 0] += 10
    across[:, -1] += 10
    assert (familiarity.score(along) > lowest - 0.05).all()
    assert (familiarity.score(across) < lowest).all()


def test_turned_features_are_as_familiar():
    turn = torch.linalg.qr(torch.randn((12, 12), generator=GENERATOR))[0]
    turned = Familiarity.of(LABELLED @ turn).score(NEW @ turn)
    torch.testing.assert_close(turned, Familiarity.of(LABELLED).score(NEW), rtol=1e-4, atol=1e-5)


def test_it_survives_storing_and_half_precision():
    familiarity = Familiarity.of(LABELLED)
    again = Familiarity.from_tensors(familiarity.tensors())
    assert again.score(NEW).equal(familiarity.score(NEW))
    coarse = familiarity.score(NEW.bfloat16())
    assert coarse.dtype == torch.float32
    assert coarse.equal(familiarity.score(NEW.bfloat16().float()))


def test_a_single_feature_and_features_that_are_no_numbers():
    assert Familiarity.of(LABELLED[:, :1]).score(NEW[:, :1]).isfinite().all()
    with pytest.raises(AnedlError, match="not finite"):
        Familiarity.of(torch.full((3, 2), torch.nan))


def test_nothing_at_all_is_unfamiliar_and_a_number():
    score = Familiarity.of(LABELLED).score(torch.zeros((1, 12)))
    assert score.isfinite().all()
    assert (score < Familiarity.of(LABELLED).score(NEW).min()).all()
