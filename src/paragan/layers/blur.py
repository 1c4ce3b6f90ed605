"""Low-pass filter around changes of resolution in StyleGAN2 (Karras et al. 2020, appendix B)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def blur(x: Tensor, before: int, after: int, stride: int = 1) -> Tensor:
    """Filter (B, C, H, W) by (1, 3, 3, 1) / 8 along both axes, after padding with zeros.

    A side becomes (side + before + after - 4) // stride + 1. Average pooling by 2 three times gives
    this filter, and has second derivatives.
    """
    x = F.pad(x, (before, after, before, after))
    return F.avg_pool2d(F.avg_pool2d(F.avg_pool2d(x, 2, 1), 2, 1), 2, stride)
