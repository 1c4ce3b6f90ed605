"""Gradients, optimiser state and average in pieces; weights are gathered once per turn and stay until its backward.

ZeRO stage 2 (Rajbhandari et al. 2020, section 5.2) but for one thing: between turns the weights lie in pieces, too.
"""

from __future__ import annotations

from paragan.parallel._fsdp import Sharded


class Strategy(Sharded):
    name = "zero2"
    reshards_after_forward = False
