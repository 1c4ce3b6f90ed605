"""Contact sheets: images of a batch in rows and columns."""

import torch
import torch.nn.functional as F
from torch import Tensor

GAP = 2  # between the images
GREY = 64


def make_sheet(x_BCHW: Tensor, columns: int, min_pixels: int = 32) -> Tensor:
    """Arrange images in [-1, 1] in rows of `columns`; returns uint8 (1 or 3, height, width).

    Images smaller than `min_pixels` are enlarged by an integer factor. Four channels are RGBA, shown on
    white; of more, the first three are used; two channels become red and green.
    """
    levels = (x_BCHW.detach().float().cpu().clamp(-1, 1) + 1) * 127.5
    if levels.shape[1] == 4:
        levels = 255 - (255 - levels[:, :3]) * levels[:, 3:] / 255
    x = levels[:, :3].round().to(torch.uint8)
    factor = max(1, -(-min_pixels // x.shape[-1]))
    x = x.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    x = F.pad(x, (0, GAP, 0, GAP), value=GREY)
    if x.shape[1] == 2:
        x = F.pad(x, (0, 0, 0, 0, 0, 1))
    channels, height, width = x.shape[1:]
    rows = -(-len(x) // columns)
    full = torch.zeros(rows * columns, channels, height, width, dtype=torch.uint8)
    full[: len(x)] = x
    full = full.view(rows, columns, channels, height, width).permute(2, 0, 3, 1, 4)
    return full.reshape(channels, rows * height, columns * width)
