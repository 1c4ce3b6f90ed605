"""Schedule of a pipeline: when which rank runs which chunk of blocks on which micro-batch.

That of `parallel/pipeline`, breadth first: every rank runs all micro-batches of its first chunk,
then of its next one, and the backward in reverse. It begins when the outputs of all micro-batches are at
the ranks of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkTime:
    """Rank of a chunk, and the seconds of its forward and backward for one micro-batch."""

    rank: int
    forward_s: float
    backward_s: float


@dataclass(frozen=True)
class Busy:
    """Time in which a rank computes, in seconds from the start of a call."""

    rank: int
    is_backward: bool
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class Interval(Busy):
    """Time in which a rank runs one chunk on one micro-batch."""

    chunk: int
    micro_batch: int


def schedule(chunks: Sequence[ChunkTime], micro_batches: int) -> list[Interval]:
    """Return when each chunk runs on each micro-batch, in forward and backward of one call.

    Messages take no time.
    """
    free = dict.fromkeys({chunk.rank for chunk in chunks}, 0.0)
    found: list[Interval] = []

    def run(order: Sequence[int], numbers: Sequence[int], is_backward: bool, begin_s: float) -> None:
        ready = dict.fromkeys(numbers, begin_s)
        for number in order:
            chunk = chunks[number]
            seconds = chunk.backward_s if is_backward else chunk.forward_s
            for micro_batch in numbers:
                start = max(free[chunk.rank], ready[micro_batch])
                free[chunk.rank] = ready[micro_batch] = start + seconds
                found.append(Interval(chunk.rank, is_backward, start, start + seconds, number, micro_batch))

    order = list(range(len(chunks)))
    numbers = list(range(micro_batches))
    run(order, numbers, False, 0.0)
    run(order[::-1], numbers[::-1], True, max(free.values()))
    return found


def idle_share_of(intervals: Sequence[Busy]) -> float:
    """Return the share of the ranks' time in which they wait (bubble)."""
    ranks = {one.rank for one in intervals}
    total_s = max(one.stop_s for one in intervals) * len(ranks)
    return 1 - sum(one.stop_s - one.start_s for one in intervals) / total_s
