"""Strategies, one file each, and what a strategy outside the package is made of.

Every strategy extends `Strategy`. `attach_placement` stores the state of
a placed network on it; `Reduction` describes how the gradients of a turn are reduced over ranks.
"""

from paragan.parallel._grad_norm import clip, norm_of
from paragan.parallel._placement import Placement, attach_placement, placement_of
from paragan.parallel._reduction import Reduction
from paragan.parallel._strategy import MemoryOptions, Strategy

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
