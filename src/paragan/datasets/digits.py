"""The 1,797 handwritten digits that ship with the library: real images without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licence CC BY 4.0; the test part of that set (13
of 43 writers). Each pixel of the 8x8 images counts the ink in 4x4 pixels of a 32x32 scan, 0…16.
Changes: packed as `digits.npz`; scaled and enlarged when read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paragan.core.source import Source
from paragan.datasets.base.in_memory import InMemorySource, compute_fingerprint, stratified_split

_FILE = Path(__file__).with_name("digits.npz")
_FULL_INK = 16
_HELD_OUT = 1 / 5


@dataclass(frozen=True)
class Options:
    """Size of the images."""

    size: Literal[8, 16, 32] = 16
    """Height and width in pixels; 8 is the original, larger sizes are bilinear enlargements."""


def source(options: Options, split: Literal["train", "held_out"]) -> Source:
    """Return 1,437 training or 360 held-out images, (1, size, size), white ink on black.

    The held-out fifth is the same for every seed and size: every fifth image of each class in a fixed shuffled order.
    Both splits come from the same writers, so held-out scores do not measure generalisation to new writers.
    """
    images_N1HW, labels_N = _enlarged_images(options.size)
    rows = stratified_split(labels_N, _HELD_OUT, "digits")[split]
    fingerprint = compute_fingerprint("digits", options.size, split)
    return InMemorySource(images_N1HW[rows], labels_N[rows], tuple("0123456789"), fingerprint)


@cache
def _enlarged_images(size: int) -> tuple[Tensor, Tensor]:
    """Return uint8 images (1797, 1, size, size) and int64 labels (1797,)."""
    with np.load(_FILE, allow_pickle=False) as arrays:
        ink_N1HW = torch.from_numpy(arrays["images"])[:, None].float()
        labels_N = torch.from_numpy(arrays["labels"]).long()
    if size != ink_N1HW.shape[-1]:
        ink_N1HW = F.interpolate(ink_N1HW, size=(size, size), mode="bilinear", align_corners=False)
    return (ink_N1HW * (255 / _FULL_INK)).round().to(torch.uint8), labels_N
