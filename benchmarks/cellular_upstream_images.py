"""Images as the upstream-style cellular baseline reads them: one by one through PIL, on every access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[Tensor]):
    """Grey images. images_u8: (N, 1, H, W) uint8; an item is (1, H, W) in [-1, 1]."""

    def __init__(self, images_u8: Tensor) -> None:
        self.shape = tuple(images_u8.shape[1:])
        self._images_NHW = images_u8.squeeze(1).numpy()
        self._most, self._mean, self._std = torch.tensor(255.0), torch.tensor(0.5), torch.tensor(0.5)

    def __len__(self) -> int:
        return len(self._images_NHW)

    def __getitem__(self, index: int) -> Tensor:
        image = Image.fromarray(self._images_NHW[index])
        pixels = torch.from_numpy(np.frombuffer(bytearray(image.tobytes()), np.uint8))
        return pixels.float().div_(self._most).sub_(self._mean).div_(self._std).view(self.shape)


def loader(images: Images, batch: int, seed: int) -> DataLoader[Tensor]:
    """All images in a new order per pass, in this thread: torch's own loader."""
    return DataLoader(images, batch, shuffle=True, drop_last=True, generator=torch.Generator().manual_seed(seed))


def forever(batches: DataLoader[Tensor]) -> Iterator[Tensor]:
    """Pass after pass."""
    while True:
        yield from batches
