"""Collective operations of ranks: what a strategy sends in one update, and the bytes on links for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Collective(Enum):
    """Kind of operation that a tensor is passed to.

    ALL_REDUCE, BROADCAST: the whole tensor on every rank. ALL_GATHER: this rank's piece of the
    result. REDUCE_SCATTER: the whole tensor, of which a rank receives a piece. LINK: a message to
    one rank.
    """

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    LINK = "link"


@dataclass(frozen=True, kw_only=True)
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


def link_bytes(collective: Collective, num_bytes: float, num_ranks: int) -> float:
    """Return the bytes that one of `num_ranks` ranks sends on its link; over all ranks, their sum.

    num_bytes: passed by this rank. A ring all-reduce of B bytes sends 2 (N - 1) B over all N ranks
    (Patarasuk & Yuan 2009); its two halves, reduce-scatter and all-gather, send (N - 1) B each; a broadcast sends B
    to each of the others, divided evenly over all ranks: the fewest bytes where all links are used evenly.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (num_ranks - 1) * num_bytes / num_ranks
        case Collective.ALL_GATHER:
            return (num_ranks - 1) * num_bytes
        case Collective.REDUCE_SCATTER | Collective.BROADCAST:
            return (num_ranks - 1) * num_bytes / num_ranks
        case Collective.LINK:
            return num_bytes
