"""Random shifts of images by whole pixels, drawn for each image."""

import torch
from torch import Tensor

_MAX_SHIFT = 1 / 8  # of the side


def shift_images(x_BCHW: Tensor, draws_B2: Tensor) -> Tensor:
    """Shift images by up to an eighth of the side, in whole pixels; what comes in is zero.

    draws_B2: uniform in [0, 1), down and right.
    """
    batch, _, height, width = x_BCHW.shape
    max_down = _max_pixels(height)
    max_right = _max_pixels(width)
    down = (draws_B2[:, 0] * (2 * max_down + 1)).long() - max_down
    right = (draws_B2[:, 1] * (2 * max_right + 1)).long() - max_right
    rows_BH = torch.arange(height, device=x_BCHW.device) - down[:, None]
    columns_BW = torch.arange(width, device=x_BCHW.device) - right[:, None]
    inside_BHW = is_inside(rows_BH, height)[:, :, None] & is_inside(columns_BW, width)[:, None, :]
    images = torch.arange(batch, device=x_BCHW.device)[:, None, None]
    rows_BH = rows_BH.clamp(0, height - 1)
    columns_BW = columns_BW.clamp(0, width - 1)
    shifted_BHWC = x_BCHW.permute(0, 2, 3, 1)[images, rows_BH[:, :, None], columns_BW[:, None]]
    return shifted_BHWC.permute(0, 3, 1, 2) * inside_BHW[:, None]


def is_inside(places: Tensor, length: int) -> Tensor:
    """Return whether positions are within [0, length)."""
    return (places >= 0) & (places < length)


def _max_pixels(side: int) -> int:
    return int(side * _MAX_SHIFT + 0.5)
