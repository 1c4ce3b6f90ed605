"""Division of the rows of a pipeline's ranks into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.traffic import Collective
from paragan.parallel._stage_ranks import StageRanks


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch: the rows of each rank of the pipeline that are in it, and how many."""

    rows: tuple[slice, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, starts: Sequence[int], counts: Sequence[int], number: int, num: int) -> MicroBatch:
        """Return micro-batch `number` of `num`. starts: first row of each rank in the batch."""
        rows = tuple(slice((number - start) % num, None, num) for start in starts)
        return cls(rows, tuple(len(range(count)[of]) for of, count in zip(rows, counts, strict=True)))

    def all_on(self, rank: int) -> tuple[int, ...]:
        """Return the rows of each rank if one has all of them."""
        return tuple(sum(self.counts) * (number == rank) for number in range(len(self.counts)))


@dataclass(frozen=True)
class RowSplit:
    """Division of the rows of a pipeline into micro-batches, without empty ones.

    counts: rows of each rank of the pipeline.
    """

    pipeline: World
    counts: tuple[int, ...]
    parts: tuple[MicroBatch, ...]

    @classmethod
    def of(cls, ranks: StageRanks, count: int, num: int) -> RowSplit:
        """Divide by row number modulo `num`. count: rows of this rank. Collective over all ranks.

        A batch without rows on any rank is one micro-batch.
        """
        everyone = ranks.world.gather(count)
        first = ranks.world.rank - ranks.pipeline.rank
        here = range(first, first + ranks.pipeline.size)
        starts = [sum(everyone[:rank]) for rank in here]
        counts = tuple(everyone[rank] for rank in here)
        parts = [MicroBatch.of(starts, counts, number, num) for number in range(num)]
        return cls(ranks.pipeline, counts, tuple(part for part in parts if sum(part.counts)) or (parts[0],))

    def mine(self, part: MicroBatch) -> slice:
        """Return the rows of this rank in a micro-batch."""
        return part.rows[self.pipeline.rank]

    def gather(self, y_B: Tensor | None) -> list[Tensor | None]:
        """Return the labels of the rows of all ranks, for each micro-batch. Collective."""
        if y_B is None:
            return [None] * len(self.parts)
        if y_B.requires_grad:
            problem = "pipeline: the second argument of a block is sent without a gradient"
            raise ConfigError(f"{problem}; pass it as part of the first, a tuple")
        padded = y_B.new_zeros((max(self.counts), *y_B.shape[1:]))
        padded[: len(y_B)] = y_B
        gathered = [torch.empty_like(padded) for _ in self.counts]
        self.pipeline.count("activations", padded, collective=Collective.ALL_GATHER)
        dist.all_gather(gathered, padded, group=self.pipeline.group)
        whole = [labels[:count] for labels, count in zip(gathered, self.counts, strict=True)]
        return [torch.cat([y[rows] for y, rows in zip(whole, part.rows, strict=True)]) for part in self.parts]

    def in_order(self, pieces: Sequence[Tensor]) -> Tensor:
        """Return this rank's rows of all micro-batches in their order."""
        if len(pieces) == 1:
            return pieces[0]
        numbers = range(self.counts[self.pipeline.rank])
        of_parts = [numbers[self.mine(part)] for part in self.parts]
        places = torch.tensor(list(chain.from_iterable(of_parts)))
        return torch.cat(list(pieces))[places.argsort().to(pieces[0].device)]
