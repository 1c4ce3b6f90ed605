"""The low-pass filter around changes of resolution in StyleGAN2 (Karras et al. 2020, appendix B)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def blur(x: Tensor, before: int, after: int, stride: int = 1) -> Tensor:
    """(B, C, H, W) filtered by (1, 3, 3, 1) / 8 along both axes, with so many zeros at either end: each side becomes
    (side + before + after - 4) // stride + 1. Three means of two in a row, which can be differentiated twice.
    """
    x = F.pad(x, (before, after, before, after))
    return F.avg_pool2d(F.avg_pool2d(F.avg_pool2d(x, 2, 1), 2, 1), 2, stride)
