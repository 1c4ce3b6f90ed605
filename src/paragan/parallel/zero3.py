"""ZeRO stage 3 (FSDP2): everything is sharded; weights are gathered block by block.

Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023.
"""

from paragan.parallel.base.fsdp import Sharded


class Strategy(Sharded):
    """ZeRO stage 3, by FSDP2."""

    name = "zero3"
    sharded_copies = 5
