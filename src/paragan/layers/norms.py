"""Which layers keep float32 weights where the rest of a network is held in a lower format."""

from __future__ import annotations

from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm

_KINDS = (
    *(AffineBatchNorm, BatchNorm, ConditionalBatchNorm),
    *(nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm),
)


def float32_parameters(net: nn.Module) -> set[int]:
    """The ids of weights of norms, ours or torch's, and of modules that say `keeps_float32`: they compute so."""
    wide = {id(p) for m in net.modules() if isinstance(m, _KINDS) for p in m.parameters(recurse=False)}
    return wide | {id(p) for m in net.modules() if getattr(m, "keeps_float32", False) for p in m.parameters()}
