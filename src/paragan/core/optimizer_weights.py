"""Tensors that an optimiser steps, by parameter name."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def optimizer_weights(optimizer: Any) -> dict[str, Tensor]:
    """Return the tensors that an optimiser steps: parameters, float32 copies, or local shards.

    Their order is that of its groups, which must have `param_names`, and of torch's state.
    """
    weights: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        weights |= zip(group["param_names"], group["params"], strict=True)
    return weights
