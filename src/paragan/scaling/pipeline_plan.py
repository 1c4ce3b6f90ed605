"""Plan of one player's pipeline: blocks of each rank, how long ranks wait, what they send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paragan.parallel._pipeline_cuts import NEARLY_EQUAL, BlockCost, balanced_cuts
from paragan.scaling.pipeline_schedule import ChunkTime, Interval, idle_share_of, schedule


@dataclass(frozen=True)
class PipelinePlan:
    """Pipeline of one player, and the forecast of a forward and backward of its network.

    micro_batches: of each call, of `rows` samples. cuts: of the config, or those with the shortest
    longest chunk. stage_shares: of the work, by rank. bubble: share of time in which ranks wait;
    equal_bubble: if each chunk had equally many blocks. sent_bytes: by one pipeline between chunks.
    turn_s: seconds, if block times were measured, else None: then shares are of estimated work.
    schedule: when each rank computes, in seconds or operations.
    """

    stages: int
    chunks: int
    micro_batches: int
    rows: int
    cuts: tuple[int, ...]
    stage_shares: tuple[float, ...]
    bubble: float
    equal_bubble: float
    sent_bytes: int
    turn_s: float | None = None
    schedule: tuple[Interval, ...] = ()


@dataclass(frozen=True)
class PipelineSize:
    """Ranks of a pipeline, chunks of blocks on each, micro-batches of a call and their samples.

    is_split: whether gradients of weights are computed last; they are taken for half of a backward.
    alternates: forwards and backwards (1F1B).
    """

    stages: int
    chunks: int
    micro_batches: int
    rows: int
    is_split: bool = False
    alternates: bool = False


def plan_pipeline(
    costs: Sequence[BlockCost], size: PipelineSize, cuts: tuple[int, ...] | None, is_measured: bool
) -> PipelinePlan:
    """Return the plan of a pipeline. costs: of the blocks. cuts: of the config; None: balanced."""
    number = size.stages * size.chunks
    chosen = balanced_cuts(costs, number, NEARLY_EQUAL) if cuts is None else cuts
    equal = tuple(len(costs) * chunk // number for chunk in range(1, number))
    found = intervals(costs, chosen, size)
    work = [0.0] * size.stages
    for one in found:
        work[one.rank] += one.stop_s - one.start_s
    rows = size.micro_batches * size.rows
    return PipelinePlan(
        size.stages,
        size.chunks,
        size.micro_batches,
        size.rows,
        chosen,
        tuple(value / sum(work) for value in work),
        idle_share_of(found),
        idle_share_of(intervals(costs, equal, size)),
        2 * rows * sum(costs[cut - 1].output_bytes for cut in chosen),  # activations, and their gradients
        max(one.stop_s for one in found) if is_measured else None,
        tuple(found),
    )


def intervals(costs: Sequence[BlockCost], cuts: Sequence[int], size: PipelineSize) -> list[Interval]:
    """Return when each rank computes in a forward and backward."""
    chunks = []
    for number, (first, stop) in enumerate(pairwise((0, *cuts, len(costs)))):
        forward = sum(one.forward_seconds for one in costs[first:stop])
        backward = sum(one.seconds for one in costs[first:stop]) - forward
        later = backward / 2 if size.is_split else 0.0
        chunks.append(ChunkTime(number % size.stages, forward, backward, later))
    return schedule(chunks, size.micro_batches, size.alternates)
