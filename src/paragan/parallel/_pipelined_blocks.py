"""Blocks of a network on the ranks of a pipeline, and the execution of their chain.

Every rank calls the network with rows of its own and receives the output of these rows: outside of
its blocks a network computes as under data parallelism. Inside, the rows of all ranks of the
pipeline go to the rank of the first chunk of blocks, in micro-batches, from chunk to chunk, and the
output of each row returns to its rank.

The order is breadth first (Lamy-Poirier 2023): all micro-batches of one chunk, then those of the
next; one backward pass goes through all of them in reverse. With one chunk per rank that is GPipe
(Huang et al. 2019), with several it is interleaved (Narayanan et al. 2021, section 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from paragan.layers.random import uses_random_numbers
from paragan.layers.update_once import UpdateOnce, mixes_samples
from paragan.parallel._chained_blocks import ChainedBlocks
from paragan.parallel._row_moves import RowMove, absent
from paragan.parallel._row_split import MicroBatch, RowSplit
from paragan.parallel._stage_ranks import StageRanks
from paragan.parallel._structures import put_together, specs_of_structure, take_apart

_MICRO_BATCHES = 4


def default_micro_batches(net: nn.Module) -> int:
    """Return the micro-batches of a call where none are set: one for layers that mix samples."""
    return 1 if mixes_samples(net) else _MICRO_BATCHES


@dataclass(frozen=True)
class Chunk:
    """Consecutive blocks, first to stop - 1, on one rank of a pipeline."""

    first: int
    stop: int
    rank: int


class AbsentBlock(UpdateOnce):
    """A block that is on another rank. mixes, draws: of that block."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.mixes = mixes_samples(block)
        self.draws = uses_random_numbers(block)


class PipelinedBlocks(ChainedBlocks):
    """`net.blocks` of a pipelined network: this rank's blocks, under their numbers.

    micro_batches: row r of the batch is in number r modulo that, as in accumulation; None: 4, or 1
    for blocks that mix the samples of a batch.
    """

    def __init__(
        self,
        blocks: nn.ModuleList | nn.Sequential,
        edges: Sequence[int],
        ranks: StageRanks,
        micro_batches: int | None,
    ) -> None:
        super().__init__()
        num = ranks.pipeline.size
        self.chunks = [Chunk(a, b, number % num) for number, (a, b) in enumerate(pairwise(edges))]
        self.ranks = ranks
        self._structures: dict[str, Any] = {}
        for number, block in enumerate(blocks.children()):
            here = self.stage_of(number) == ranks.pipeline.rank
            self.add_module(str(number), block if here else AbsentBlock(block))
        self._mixes = mixes_samples(self)
        self.micro_batches = micro_batches or default_micro_batches(self)

    def stage_of(self, number: int) -> int:
        """Return the rank of a block in its pipeline."""
        return next(chunk.rank for chunk in self.chunks if chunk.first <= number < chunk.stop)

    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        """Run consecutive blocks on this rank's rows; return the output of these rows. Collective."""
        first = numbers.start
        stop = numbers.stop
        chunks = [
            Chunk(max(chunk.first, first), min(chunk.stop, stop), chunk.rank)
            for chunk in self.chunks
            if chunk.first < stop and chunk.stop > first
        ]
        value, structure = take_apart(h)
        # as `core.fakes.detached_fakes`: without a gradient, layers mix samples of the whole batch
        is_whole = self.training and self._mixes and not torch.is_grad_enabled()
        rows = RowSplit.of(self.ranks, len(value[0]), 1 if is_whole else self.micro_batches)
        whole = [rows.gather(each) for each in labels]
        held = self._enter(value, rows, chunks[0].rank)
        route = [chunks[0].rank, *(chunk.rank for chunk in chunks), chunks[-1].rank]
        for number, chunk in enumerate(chunks):
            ends = (route[number], route[number + 2])
            structure = self._run_chunk(chunk, ends, held, rows, whole, structure)
        outputs = self._leave(held, rows, chunks[-1].rank)
        if not torch.is_grad_enabled():
            self.ranks.messages.flush()
        return put_together(outputs, structure)

    def _enter(self, value: Sequence[Tensor], rows: RowSplit, rank: int) -> list[list[Tensor]]:
        """Move the rows of all ranks to the first chunk; a backward follows if one needs it."""
        return [
            RowMove(self.ranks.messages, part.counts, part.all_on(rank), is_recorded_always=False)(
                [tensor[rows.mine(part)] for tensor in value]
            )
            for part in rows.parts
        ]

    def _run_chunk(
        self,
        chunk: Chunk,
        ends: tuple[int, int],
        held: list[list[Tensor]],
        rows: RowSplit,
        labels: Sequence[Sequence[Tensor | None]],
        structure: Any,
    ) -> Any:
        """Run one chunk on all micro-batches, in place in `held`; return the structure of its output.

        ends: ranks that the input comes from and the output goes to.
        """
        here = chunk.rank
        for number, part in enumerate(rows.parts):
            value = held[number]
            if here == self.ranks.pipeline.rank:
                if ends[0] != here:
                    value = self._move(part, ends[0], here)(value)
                out: Any = put_together(value, structure)
                for block in self._blocks_of(chunk):
                    out = block(out, *(each[number] for each in labels))
                value, found = take_apart(out)
                produced = self._agree(chunk, structure, found)
                if ends[1] != here:
                    value = self._move(part, here, ends[1])(value)
            else:
                produced = self._agree(chunk, structure, None)
                value = absent(specs_of_structure(produced), value)
            held[number] = value
        return produced

    def _move(self, part: MicroBatch, source: int, target: int) -> RowMove:
        return RowMove(self.ranks.messages, part.all_on(source), part.all_on(target))

    def _blocks_of(self, chunk: Chunk) -> list[nn.Module]:
        return list(self.children())[chunk.first : chunk.stop]

    def _agree(self, chunk: Chunk, before: Any, found: Any) -> Any:
        """Return the structure of a chunk's output, which its rank sends once per kind of input."""
        autocast = torch.is_autocast_enabled(self.ranks.pipeline.device.type)
        key = json.dumps([chunk.first, chunk.stop, before, autocast, self.training])
        if key not in self._structures:
            self._structures[key] = self.ranks.pipeline.gather(found)[chunk.rank]
        return self._structures[key]

    def _leave(self, held: Sequence[Sequence[Tensor]], rows: RowSplit, rank: int) -> list[Tensor]:
        """Move the outputs to the ranks of their rows, each tensor in a node of its own."""
        moved: list[list[Tensor]] = []
        for part, value in zip(rows.parts, held, strict=True):
            back = RowMove(self.ranks.messages, part.all_on(rank), part.counts)
            moved.append(list(chain.from_iterable(back([tensor]) for tensor in value)))
        return [rows.in_order(pieces) for pieces in zip(*moved, strict=True)]
