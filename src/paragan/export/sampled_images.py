"""Sampled images as a sequence of Pillow images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import overload

import torch
from PIL import Image
from torch import Tensor

from paragan.core.printable import counted
from paragan.storage.image_formats import check_sheet_path
from paragan.storage.image_sheet import make_sheet
from paragan.writers.images import save_grid, to_pil_image


@dataclass(frozen=True, eq=False)
class SampledImages(Sequence[Image.Image]):
    """Sequence of Pillow images.

    tensor: x_BCHW, float32 in [-1, 1], on the CPU. labels: the class number of each.
    """

    tensor: Tensor
    labels: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.tensor)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'image')} of {'x'.join(map(str, self.tensor.shape[1:]))}>"

    def _repr_png_(self) -> bytes:
        """Return a sheet, which notebooks show."""
        sheet = BytesIO()
        to_pil_image(make_sheet(self.tensor, min(10, len(self)))).save(sheet, "PNG")
        return sheet.getvalue()

    @overload
    def __getitem__(self, index: int) -> Image.Image: ...

    @overload
    def __getitem__(self, index: slice) -> SampledImages: ...

    def __getitem__(self, index: int | slice) -> Image.Image | SampledImages:
        if isinstance(index, slice):
            return SampledImages(self.tensor[index], None if self.labels is None else self.labels[index])
        return to_pil_image(_bytes(self.tensor[index]))

    def to_bytes(self) -> Tensor:
        """Return uint8 x_BCHW, rounded."""
        return _rounded(self.tensor)

    def save(self, path: str | Path, columns: int = 10) -> Path:
        """Save a sheet, .png or .jpg, `columns` images per row; images below 32 px are enlarged."""
        path = Path(path)
        check_sheet_path("save", path)
        save_grid(self.tensor, path, min(columns, len(self)))
        return path


def _bytes(x_CHW: Tensor) -> Tensor:
    """Convert to uint8: grey, RGB or RGBA; of more channels the first three, two as red and green."""
    x = _rounded(x_CHW[: 4 if len(x_CHW) == 4 else 3])
    return torch.cat([x, torch.zeros_like(x[:1])]) if len(x) == 2 else x


def _rounded(x: Tensor) -> Tensor:
    return x.clamp(-1, 1).add_(1).mul_(127.5).round_().to(torch.uint8)
