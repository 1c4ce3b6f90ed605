"""Strategies, one file each, and what a strategy outside the package is made of.

Every strategy extends `Strategy`. `attach_placement` stores the state of
a placed network on it; `Reduction` describes how the gradients of a turn are reduced over ranks.
"""

from paragan.parallel.base.grad_norm import clip, norm_of
from paragan.parallel.base.placement import Placement, attach_placement, placement_of
from paragan.parallel.base.reduction import Reduction
from paragan.parallel.base.strategy import MemoryOptions, Strategy

__all__ = [
    "MemoryOptions",
    "Placement",
    "Reduction",
    "Strategy",
    "attach_placement",
    "clip",
    "norm_of",
    "placement_of",
]
