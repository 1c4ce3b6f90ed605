"""Division of the rows of a pipeline's ranks into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.dist import Collective, World
from paragan.core.errors import ConfigError
from paragan.core.phases import Phase, phase
from paragan.parallel.base.rank_groups import RankGroups


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch: the rows of each rank of the pipeline that are in it, and how many."""

    rows: tuple[slice, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, starts: Sequence[int], counts: Sequence[int], number: int, num: int) -> MicroBatch:
        """Return micro-batch `number` of `num`: the rows with this number modulo `num`.

        starts: first row of each rank in the batch. counts: rows of each rank.
        """
        rows = tuple(slice((number - start) % num, None, num) for start in starts)
        pairs = zip(rows, counts, strict=True)
        return cls(rows, tuple(len(range(count)[local_rows]) for local_rows, count in pairs))

    def all_on(self, rank: int) -> tuple[int, ...]:
        """Return the number of rows on each rank if one has all of them."""
        return tuple(sum(self.counts) if other == rank else 0 for other in range(len(self.counts)))


@dataclass(frozen=True)
class RowSplit:
    """Division of the rows of a pipeline into micro-batches.

    counts: rows of each rank of the pipeline. One of its micro-batches can be empty where another
    pipeline has rows: copies of a block run equally often, since they may communicate.
    """

    pipeline: World
    counts: tuple[int, ...]
    parts: tuple[MicroBatch, ...]

    @classmethod
    def of(cls, ranks: RankGroups, count: int, num: int) -> RowSplit:
        """Divide by row number modulo `num`. count: rows of this rank. Collective over all ranks.

        A batch of fewer rows has a micro-batch for each; one without rows on any rank has one.
        """
        # exchanged in every call: other ranks' counts change without this rank's
        counts_of_all = _gather_count(ranks, count)
        first = ranks.world.rank - ranks.group.rank
        pipeline = range(first, first + ranks.group.size)
        starts = [sum(counts_of_all[:rank]) for rank in pipeline]
        counts = tuple(counts_of_all[rank] for rank in pipeline)
        num = max(1, min(num, sum(counts_of_all)))
        parts = tuple(MicroBatch.of(starts, counts, number, num) for number in range(num))
        return cls(ranks.group, counts, parts)

    def local_rows(self, part: MicroBatch) -> slice:
        """Return the rows of this rank in a micro-batch."""
        return part.rows[self.pipeline.rank]

    def gather(self, y_B: Tensor | None) -> list[Tensor | None]:
        """Return the labels of the rows of all ranks, for each micro-batch. y_B: of this rank. Collective."""
        if y_B is None:
            return [None] * len(self.parts)
        _check_labels(y_B, self.counts[self.pipeline.rank])
        padded = y_B.new_zeros((max(self.counts), *y_B.shape[1:]))
        padded[: len(y_B)] = y_B
        gathered = [torch.empty_like(padded) for _ in self.counts]
        self.pipeline.count("activations", padded, collective=Collective.ALL_GATHER)
        with phase(Phase.COMMUNICATION):
            dist.all_gather(gathered, padded, group=self.pipeline.group)
        by_rank = [labels[:count] for labels, count in zip(gathered, self.counts, strict=True)]
        of_parts: list[Tensor | None] = []
        for part in self.parts:
            of_parts.append(torch.cat([y[rows] for y, rows in zip(by_rank, part.rows, strict=True)]))
        return of_parts

    def in_order(self, pieces: Sequence[Tensor]) -> Tensor:
        """Return this rank's rows of all micro-batches in their order."""
        if len(pieces) == 1:
            return pieces[0]
        rows = range(self.counts[self.pipeline.rank])
        rows_of_parts = [rows[self.local_rows(part)] for part in self.parts]
        order = torch.tensor(list(chain.from_iterable(rows_of_parts)))
        return torch.cat(list(pieces))[order.argsort().to(pieces[0].device)]  # argsort inverts the order


def _check_labels(y_B: Tensor, count: int) -> None:
    """Raise `ConfigError` unless these are labels of so many rows."""
    if not isinstance(y_B, Tensor) or y_B.requires_grad or y_B.shape[:1] != (count,):
        problem = "further arguments of a block are None, or tensors of one row per sample"
        raise ConfigError(f"pipeline: {problem} without a gradient; pass others as part of the first, a tuple")


def _gather_count(ranks: RankGroups, count: int) -> list[int]:
    """Return the rows of each rank. Collective."""
    world = ranks.world
    local = torch.tensor([count])
    gathered = [torch.empty_like(local) for _ in range(world.size)]
    world.count("control", local, collective=Collective.ALL_GATHER)
    with phase(Phase.COMMUNICATION):
        dist.all_gather(gathered, local, group=world.control)
    return [int(count_of_rank) for count_of_rank in gathered]
