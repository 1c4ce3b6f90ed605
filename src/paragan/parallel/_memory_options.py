"""What a player may ask of any strategy, beside the strategy's own options."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MemoryOptions:
    """recompute: activations inside a block are computed again in the backward. offload: optimiser state and float32
    weights lie in the host's memory. narrow: reductions of gradients or weights travel in bf16. pure: the format in
    which weights are held; the optimiser keeps float32 ones. norm_ranks: over how many consecutive ranks batch norm
    takes its statistics (None: all, 1: each by itself).
    """

    recompute: bool = False
    offload: bool = False
    bf16_reduce: bool = False
    weight_dtype: torch.dtype | None = None
    norm_ranks: int | None = None


NO_MEMORY_OPTIONS = MemoryOptions()
