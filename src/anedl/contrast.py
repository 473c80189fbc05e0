"""Learning features from views alone: an image's two views are to be alike, and unlike the rest."""

import torch
import torch.nn.functional as F
from torch import Tensor

from anedl.dirichlet import in_full_precision


@in_full_precision
def contrast(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """SimCLR's NT-Xent: tell a view's partner from all views of the other images, (2N,).

    `first` and `second` are (N, d), a row an image. With z their rows scaled to length 1, those of
    `first` before those of `second`: −log softmax over j ≠ i of z_i·z_j / temperature, taken at the
    partner of i.
    """
    rows = F.normalize(torch.cat([first, second]), dim=-1)
    likeness = rows @ rows.T / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    partner = torch.arange(len(rows), device=rows.device).roll(len(first))
    return F.cross_entropy(likeness.masked_fill(itself, -torch.inf), partner, reduction="none")
