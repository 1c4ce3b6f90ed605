"""One quarter of each image or map, chosen by row."""

import torch
from torch import Tensor


def take_quarter(x_BCHW: Tensor, part_B: Tensor) -> Tensor:
    """Return a quarter of each map, (B, C, H / 2, W / 2).

    part_B: 0 to 3, upper left, upper right, lower left, lower right. H and W are even.
    """
    quarters = x_BCHW.unflatten(3, (2, -1)).unflatten(2, (2, -1))  # B, C, 2, H / 2, 2, W / 2
    rows = torch.arange(len(part_B), device=part_B.device)
    return quarters[rows, :, part_B // 2, :, part_B % 2]
