"""Layers that hold float32 weights in a network of a lower precision."""

from __future__ import annotations

from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm

_KINDS = (
    *(AffineBatchNorm, BatchNorm, ConditionalBatchNorm),
    *(nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm),
)


def float32_parameters(net: nn.Module) -> set[int]:
    """Return the ids of weights of norms, local or torch's, and of modules with `keeps_float32`."""
    wide = {id(p) for m in net.modules() if isinstance(m, _KINDS) for p in m.parameters(recurse=False)}
    return wide | {id(p) for m in net.modules() if getattr(m, "keeps_float32", False) for p in m.parameters()}
