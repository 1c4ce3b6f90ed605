"""Everything in pieces, weights gathered block by block when they are needed (ZeRO stage 3, FSDP2).

Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023.
"""

from __future__ import annotations

from paragan.parallel._fsdp import Sharded


class Strategy(Sharded):
    name = "zero3"
