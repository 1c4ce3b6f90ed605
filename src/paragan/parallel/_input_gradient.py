"""Gradient of a network at its input, to be differentiated again."""

from __future__ import annotations

import torch
from torch import Tensor


def input_gradient(out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
    """Return d sum(out_B) / dx with its graph, unscaled. scale: of the inner backward."""
    total = out_B.float().sum() if out_B.dtype in (torch.float16, torch.bfloat16) else out_B.sum()
    (grad,) = torch.autograd.grad(total if scale is None else total * scale, x, create_graph=True)
    if not grad.requires_grad:
        raise RuntimeError("the input gradient came back without a graph: this strategy is not differentiable twice")
    return grad if scale is None else grad / scale
