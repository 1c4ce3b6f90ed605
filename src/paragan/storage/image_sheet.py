"""Contact sheets: images of a batch in rows and columns."""

import torch
import torch.nn.functional as F
from torch import Tensor

GAP = 2  # between the images
GREY = 64
CHECKS = (255, 204)  # levels of the squares behind transparent images, as image editors show them


def make_sheet(x_BCHW: Tensor, columns: int, min_pixels: int = 32) -> Tensor:
    """Arrange images in [-1, 1] in rows of `columns`; returns uint8 (1 or 3, height, width).

    Images smaller than `min_pixels` are enlarged by an integer factor. Four channels are RGBA, shown on
    a checkerboard; of more, the first three are used; two channels become red and green.
    """
    levels = (x_BCHW.detach().float().cpu().clamp(-1, 1) + 1) * 127.5
    if levels.shape[1] == 4:
        behind_HW = _checkerboard(*levels.shape[2:])
        levels = behind_HW + (levels[:, :3] - behind_HW) * levels[:, 3:] / 255
    x = levels[:, :3].round().to(torch.uint8)
    factor = max(1, -(-min_pixels // x.shape[-1]))
    x = x.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    if x.shape[1] == 2:
        x = F.pad(x, (0, 0, 0, 0, 0, 1))
    x = F.pad(x, (0, GAP, 0, GAP), value=GREY)
    channels, height, width = x.shape[1:]
    rows = -(-len(x) // columns)
    cells = torch.zeros(rows * columns, channels, height, width, dtype=torch.uint8)
    cells[: len(x)] = x
    sheet = cells.view(rows, columns, channels, height, width).permute(2, 0, 3, 1, 4)
    return sheet.reshape(channels, rows * height, columns * width)


def _checkerboard(height: int, width: int) -> Tensor:
    """Return the levels (height, width) of squares, eight along the shorter side."""
    side = max(1, min(height, width) // 8)
    is_dark = (torch.arange(height)[:, None] // side + torch.arange(width) // side) % 2 == 1
    return torch.where(is_dark, float(CHECKS[1]), float(CHECKS[0]))
