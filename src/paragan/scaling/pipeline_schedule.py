"""Schedule of a pipeline: when which rank runs which chunk of blocks on which micro-batch.

Those of `parallel/pipeline`. Breadth first: every rank runs all micro-batches of its first chunk,
then of its next one, and the backward in reverse. It begins when the outputs of all micro-batches
are at the ranks of their rows. With a split backward every rank computes gradients of weights last.
1F1B: a rank runs a backward between two forwards, in the rounds of `parallel/_alternating_passes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paragan.parallel._alternating_passes import slack_rounds


@dataclass(frozen=True)
class ChunkTime:
    """Rank of a chunk, and the seconds of its forward and backward for one micro-batch.

    later_s: of the backward, for gradients of weights that are computed last.
    """

    rank: int
    forward_s: float
    backward_s: float
    later_s: float = 0.0


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


def schedule(chunks: Sequence[ChunkTime], micro_batches: int, alternates: bool = False) -> list[Interval]:
    """Return when each chunk runs on each micro-batch, in forward and backward of one call.

    alternates: forwards and backwards (1F1B). Messages take no time.
    """
    free = dict.fromkeys({chunk.rank for chunk in chunks}, 0.0)
    ready = [0.0] * micro_batches
    found: list[Interval] = []

    def add(number: int, micro_batch: int, is_backward: bool, s: float) -> None:
        rank = chunks[number].rank
        start = max(free[rank], ready[micro_batch])
        free[rank] = ready[micro_batch] = start + s
        found.append(Interval(rank, is_backward, start, free[rank], number, micro_batch))

    if alternates:
        for number, part, is_backward in _alternating_order(len(chunks), micro_batches, slack_rounds(len(free))):
            if number is not None:
                add(number, part, is_backward, chunks[number].backward_s if is_backward else chunks[number].forward_s)
                continue
            for rank, seconds in free.items():
                free[rank] = max(seconds, ready[part])
            ready[part] = max(free.values())  # gradients of all rows
        return found
    order = list(range(len(chunks)))
    for number in order:
        for part in range(micro_batches):
            add(number, part, False, chunks[number].forward_s)
    ready = [max(free.values())] * micro_batches
    for number in order[::-1]:
        for part in reversed(range(micro_batches)):
            add(number, part, True, chunks[number].backward_s - chunks[number].later_s)
    ready = [0.0] * micro_batches
    for number in order[::-1] if any(chunk.later_s for chunk in chunks) else ():
        for part in reversed(range(micro_batches)):
            add(number, part, True, chunks[number].later_s)
            ready[part] = 0.0
    return found


def _alternating_order(num_chunks: int, micro_batches: int, slack: int) -> list[tuple[int | None, int, bool]]:
    """Return (chunk, micro-batch, is a backward) of all passes in their order; None: the loss, on all ranks.

    slack: rounds in which outputs go to the ranks of their rows, and in which gradients return.
    """
    passes: list[tuple[int, int, bool, int | None]] = []
    for part in range(micro_batches):
        loss = 2 * part + num_chunks - 1 + slack
        passes.append((loss, part, False, None))
        for number in range(num_chunks):
            passes.append((2 * part + number, part, False, number))
            passes.append((loss + slack + num_chunks - 1 - number, part, True, number))
    passes.sort(key=lambda one: one[:2])
    return [(number, part, is_backward) for _, part, is_backward, number in passes]


def idle_share_of(intervals: Sequence[Busy]) -> float:
    """Return the share of the ranks' time in which they wait (bubble)."""
    ranks = {one.rank for one in intervals}
    total_s = max(one.stop_s for one in intervals) * len(ranks)
    return 1 - sum(one.stop_s - one.start_s for one in intervals) / total_s
