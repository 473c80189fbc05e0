"""RandAugment on whole batches: any mixture of operations in one lookup, one blend and one gather.

Running every operation on every image and keeping one would do the work fourteen times. But each
operation is one of three things: a map of grey levels, a blend with a grey or a smoothed copy, or
an affine transform. So a layer does these three once for the whole batch, with tables, factors and
transforms that differ from image to image and do nothing where an image drew another operation.

The draws are discrete (operation, magnitude, sign), so whatever does not depend on the pixels is
computed once, in double precision, and looked up by the draw. Operations and their parameters are
those of the host.
"""

import torch
from torch import Tensor, nn

from anedl.data.augment.batched_geometry import (
    Affine,
    affine_nearest,
    fixed_point,
    rotation,
)
from anedl.data.augment.batched_ops import (
    LEVELS,
    autocontrast_tables,
    blend,
    brightness_tables,
    contrast_tables,
    equalize_tables,
    histogram_of,
    lookup,
    luminance,
    per_image,
    posterize_tables,
    smooth,
    solarize_tables,
)
from anedl.data.augment.host import OPERATION_PROBABILITY, OPERATIONS_A_VIEW
from anedl.data.augment.host_ops import MAGNITUDES, OPERATIONS

NAMES = tuple(OPERATIONS)
SIGNS = (-1, 1)
CHOICES = [(name, magnitude, sign) for name in NAMES for magnitude in MAGNITUDES for sign in SIGNS]
"""Every draw; the sign means nothing to most operations, and the magnitude nothing to some."""

DRAWS_A_LAYER = 4
DRAWS = OPERATIONS_A_VIEW * DRAWS_A_LAYER


def affine_of(name: str, parameter: float, size: int) -> Affine:
    """The transform of an operation on `size` × `size` images; the identity if it moves nothing."""
    match name:
        case "Rotate":
            return rotation(parameter, size)
        case "ShearX":
            return (1.0, parameter, 0.0, 0.0, 1.0, 0.0)
        case "ShearY":
            return (1.0, 0.0, 0.0, parameter, 1.0, 0.0)
        case "TranslateX":
            return (1.0, 0.0, parameter, 0.0, 1.0, 0.0)
        case "TranslateY":
            return (1.0, 0.0, 0.0, 0.0, 1.0, parameter)
        case _:
            return (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


def table_of(name: str, parameter: float) -> Tensor:
    """The map of grey levels (256,) uint8 of an operation; the identity if it needs the pixels."""
    match name:
        case "Brightness":
            return brightness_tables(torch.tensor([parameter], dtype=torch.float32)).flatten()
        case "Posterize":
            return posterize_tables(torch.tensor([int(parameter)])).flatten()
        case "Solarize":
            return solarize_tables(torch.tensor([int(parameter)])).flatten()
        case _:
            return torch.arange(LEVELS).to(torch.uint8)


class RandAugment(nn.Module):
    """Two layers of random operations on (N, C, size, size) uint8.

    The buffers `choice_…` hold one row for each of CHOICES.
    """

    choice_operation: Tensor
    choice_factor: Tensor
    choice_table: Tensor
    choice_transform: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        draws: list[tuple[str, float]] = []
        for name, magnitude, sign in CHOICES:
            parameter = OPERATIONS[name].parameter(magnitude, size)
            draws.append((name, sign * parameter if OPERATIONS[name].signed else parameter))
        names, parameters = zip(*draws, strict=True)
        operation = torch.tensor([NAMES.index(name) for name in names])
        factor = torch.tensor(parameters, dtype=torch.float32)
        table = torch.stack([table_of(*draw) for draw in draws])[:, None]
        fixed = [fixed_point(affine_of(*draw, size)) for draw in draws]
        self.register_buffer("choice_operation", operation, persistent=False)
        self.register_buffer("choice_factor", factor, persistent=False)
        self.register_buffer("choice_table", table, persistent=False)
        self.register_buffer(
            "choice_transform", torch.tensor(fixed, dtype=torch.int32), persistent=False
        )

    def forward(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Augment by `uniform` (N, DRAWS), numbers in [0, 1)."""
        for draws in uniform.chunk(OPERATIONS_A_VIEW, dim=1):
            images = self.apply_choice(images, draw_choice(draws))
        return images

    def apply_choice(self, images: Tensor, choice: Tensor) -> Tensor:
        """Apply to each image the operation at its position `choice` (N,) int64 in CHOICES."""
        operation = self.choice_operation[choice]
        factor = self.choice_factor[choice]
        grey = luminance(images)
        levels = images.flatten(2).long()
        histogram = histogram_of(levels)

        def where_drawn(name: str, result: Tensor, otherwise: Tensor) -> Tensor:
            drawn = operation == NAMES.index(name)
            return torch.where(per_image(drawn, result.dim()), result, otherwise)

        tables = self.choice_table[choice]
        tables = where_drawn("Contrast", contrast_tables(grey, factor), tables)
        tables = where_drawn("AutoContrast", autocontrast_tables(histogram), tables)
        tables = where_drawn("Equalize", equalize_tables(histogram), tables)
        mapped = lookup(tables, levels).view(images.shape)

        # Elsewhere the image is blended with itself, which changes nothing whatever the factor.
        degenerate = where_drawn("Sharpness", smooth(images), mapped)
        degenerate = where_drawn("Color", grey, degenerate)
        blended = blend(degenerate, mapped, per_image(factor, 4))

        return affine_nearest(blended, self.choice_transform[choice])


def draw_choice(uniform: Tensor) -> Tensor:
    """Turn `uniform` (N, DRAWS_A_LAYER) into positions (N,) int64 in CHOICES.

    The four numbers decide the operation, the magnitude, whether it is applied, and the sign.
    """
    which, how_much, whether, side = uniform.unbind(1)
    operation = (which * len(NAMES)).long()
    operation = torch.where(whether < OPERATION_PROBABILITY, operation, NAMES.index("Identity"))
    magnitude = (how_much * len(MAGNITUDES)).long()
    sign = (side * len(SIGNS)).long()
    return (operation * len(MAGNITUDES) + magnitude) * len(SIGNS) + sign
