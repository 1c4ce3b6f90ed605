"""Exchanges between the ranks of a player, as values: what a strategy sends in one update."""

from __future__ import annotations

from dataclasses import dataclass

from paragan.core.traffic import Collective


@dataclass(frozen=True)
class RankExchange:
    """A collective of the ranks of one player.

    num_bytes: of the whole tensor. every: updates between two exchanges. count: collectives that
    share these bytes, each with its own latency. overlaps: whether it runs during the backward
    pass, in buckets.
    """

    kind: Collective
    num_bytes: int
    every: int = 1
    count: int = 1
    overlaps: bool = False
