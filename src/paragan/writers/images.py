"""PNG grids."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

GAP, GREY = 2, 64  # between the images


def save_grid(x_BCHW: Tensor, path: Path, columns: int, least_pixels: int = 32) -> None:
    """x in [-1, 1], 1 or 3 channels, `columns` images to a row.

    Small images are enlarged by a whole factor to be seen.
    """
    x = ((x_BCHW.float().cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    factor = max(1, -(-least_pixels // x.shape[-1]))
    x = F.pad(x.repeat_interleave(factor, 2).repeat_interleave(factor, 3), (0, GAP, 0, GAP), value=GREY)
    channels, height, width = x.shape[1:]
    rows = -(-len(x) // columns)
    sheet = torch.zeros(rows * columns, channels, height, width, dtype=torch.uint8)
    sheet[: len(x)] = x
    sheet = (
        sheet.view(rows, columns, channels, height, width)
        .permute(0, 3, 1, 4, 2)
        .reshape(rows * height, columns * width, channels)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sheet.squeeze(2).numpy() if channels == 1 else sheet.numpy()).save(path)
