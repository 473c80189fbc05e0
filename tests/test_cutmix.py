import pytest
import torch

from anedl import cutmix


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (4000, 3, 12, 8), dtype=torch.uint8, generator=generator)


@pytest.fixture
def patches(images):
    torch.manual_seed(1)
    return cutmix.draw_patches(images, 1.0)


def test_patches_are_rectangles(patches):
    assert patches.shape == (4000, 1, 12, 8)
    rows, columns = patches.any(3)[:, 0], patches.any(2)[:, 0]
    assert torch.equal(patches[:, 0], rows[:, :, None] & columns[:, None, :])
    for side in (rows, columns):
        # Without a gap: at most one beginning and one end.
        assert (side.int().diff(dim=1).abs().sum(1) <= 2).all()


def test_areas_and_places(patches):
    """A rectangle of area a, its centre uniform, keeps (√a − a/4)² of the image inside it."""
    expected = torch.linspace(0, 1, 10_001).double()
    inside = (expected.sqrt() - expected / 4).square().mean()
    kept = cutmix.share_kept(patches)
    assert (1 - kept).mean().item() == pytest.approx(inside.item(), abs=0.015)
    covered = patches.float().mean(0)[0]
    assert (covered - covered.flip(0)).abs().max() < 0.06
    assert (covered - covered.flip(1)).abs().max() < 0.06


def test_only_so_many_get_one(images):
    torch.manual_seed(2)
    drawn = cutmix.draw_patches(images, 0.25).flatten(1).any(1).float().mean()
    # Of those that do the smallest may cover the centre of no pixel.
    assert 0.22 < drawn <= 0.28
    assert not cutmix.draw_patches(images, 0.0).any()


def test_pixels_come_from_the_partner(images, patches):
    mixed = cutmix.paste(images, patches)
    assert mixed.dtype == torch.uint8
    for i in (0, 1, 17, 3999):
        own = patches[i].expand(3, -1, -1).logical_not()
        assert torch.equal(mixed[i][own], images[i][own])
        assert torch.equal(mixed[i][~own], images[i - 1][~own])
    labels = torch.arange(4000)
    assert cutmix.partner_of(labels)[[0, 1, 17]].tolist() == [3999, 0, 16]


def test_what_is_kept_is_what_was_not_pasted(images, patches):
    black, white = torch.zeros_like(images), torch.full_like(images, 255)
    mixed = torch.where(patches, white, black).float() / 255
    torch.testing.assert_close(1 - mixed.mean((1, 2, 3)), cutmix.share_kept(patches))
