"""Layers that hold float32 weights in a network of a lower precision."""

from __future__ import annotations

from itertools import chain

from torch import nn

from paragan.layers.batch_norm import AffineBatchNorm, BatchNorm
from paragan.layers.conditional_norm import ConditionalBatchNorm

_KINDS = (
    *(AffineBatchNorm, BatchNorm, ConditionalBatchNorm),
    *(nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm),
)


def float32_parameters(net: nn.Module) -> set[int]:
    """Return the ids of weights of norms, local or torch's, and of modules with `keeps_float32`."""
    norms = (m.parameters(recurse=False) for m in net.modules() if isinstance(m, _KINDS))
    marked = (m.parameters() for m in net.modules() if getattr(m, "keeps_float32", False))
    return {id(p) for p in chain.from_iterable(chain(norms, marked))}
