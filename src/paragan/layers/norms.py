"""Which layers normalise: they keep float32 weights where the rest of a network is held in a lower format."""

from __future__ import annotations

from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm

_KINDS = (
    *(AffineBatchNorm, BatchNorm, ConditionalBatchNorm),
    *(nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm),
)


def is_norm(module: nn.Module) -> bool:
    """Ours or torch's."""
    return isinstance(module, _KINDS)
