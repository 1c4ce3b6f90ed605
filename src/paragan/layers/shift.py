"""Random shifts of images by whole pixels, drawn for each image."""

import torch
from torch import Tensor

_MOST = 1 / 8  # largest shift, of the side


def shift_images(x_BCHW: Tensor, draws_B2: Tensor) -> Tensor:
    """Shift images by up to an eighth of the side, in whole pixels; what comes in is zero.

    draws_B2: uniform in [0, 1), down and right.
    """
    batch, _, height, width = x_BCHW.shape
    most_down = _most(height)
    most_right = _most(width)
    down = (draws_B2[:, 0] * (2 * most_down + 1)).long() - most_down
    right = (draws_B2[:, 1] * (2 * most_right + 1)).long() - most_right
    rows_BH = torch.arange(height, device=x_BCHW.device) - down[:, None]
    columns_BW = torch.arange(width, device=x_BCHW.device) - right[:, None]
    inside_BHW = is_inside(rows_BH, height)[:, :, None] & is_inside(columns_BW, width)[:, None, :]
    images = torch.arange(batch, device=x_BCHW.device)[:, None, None]
    taken = x_BCHW.permute(0, 2, 3, 1)[
        images, rows_BH.clamp(0, height - 1)[:, :, None], columns_BW.clamp(0, width - 1)[:, None]
    ]
    return taken.permute(0, 3, 1, 2) * inside_BHW[:, None]


def is_inside(places: Tensor, length: int) -> Tensor:
    """Return whether positions are within [0, length)."""
    return (places >= 0) & (places < length)


def _most(side: int) -> int:
    return int(side * _MOST + 0.5)
