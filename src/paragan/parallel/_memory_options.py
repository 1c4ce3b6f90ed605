"""Memory options of a player, which every strategy supports."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MemoryOptions:
    """Memory options of a player.

    recompute: activations inside a block are computed again in the backward. offload: optimiser
    state and float32 weights are in host memory. bf16_reduce: reductions of gradients or weights
    travel in bf16. weight_dtype: the dtype of the weights; the optimiser has float32 copies.
    norm_ranks: consecutive ranks that share the statistics of batch norm; None: all.
    """

    recompute: bool = False
    offload: bool = False
    bf16_reduce: bool = False
    weight_dtype: torch.dtype | None = None
    norm_ranks: int | None = None


NO_MEMORY_OPTIONS = MemoryOptions()
