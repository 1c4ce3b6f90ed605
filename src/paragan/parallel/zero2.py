"""ZeRO stage 2 (FSDP2): gradients, optimiser state and average are sharded.

Weights are gathered once per turn and stay gathered until its backward. Rajbhandari et al. 2020,
section 5.2, with one difference: between turns the weights are sharded, too.
"""

from paragan.parallel.base.fsdp import Sharded


class Strategy(Sharded):
    """ZeRO stage 2, by FSDP2."""

    name = "zero2"
    sharded_copies = 4
    reshards_after_forward = False
