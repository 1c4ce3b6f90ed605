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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.traffic import Collective
from paragan.layers.blocks import BlockRunner
from paragan.layers.random import uses_random_numbers
from paragan.layers.update_once import UpdateOnce, mixes_samples
from paragan.parallel._row_moves import RowMove, Spec, absent
from paragan.parallel._stage_ranks import StageRanks


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


class PipelinedBlocks(nn.ModuleList, BlockRunner):
    """`net.blocks` of a pipelined network: this rank's blocks, under their numbers.

    micro_batches: row r of the batch is in number r modulo that, as in accumulation.
    """

    def __init__(
        self,
        blocks: nn.ModuleList | nn.Sequential,
        edges: Sequence[int],
        ranks: StageRanks,
        micro_batches: int,
    ) -> None:
        super().__init__()
        num = ranks.pipeline.size
        self.chunks = [Chunk(a, b, number % num) for number, (a, b) in enumerate(pairwise(edges))]
        self.ranks = ranks
        self.micro_batches = micro_batches
        self.takes_labels = isinstance(blocks, nn.ModuleList)
        self._structures: dict[str, Any] = {}
        for number, block in enumerate(blocks.children()):
            here = self.stage_of(number) == ranks.pipeline.rank
            self.add_module(str(number), block if here else AbsentBlock(block))
        self._mixes = mixes_samples(self)

    def stage_of(self, number: int) -> int:
        """Return the rank of a block in its pipeline."""
        return next(chunk.rank for chunk in self.chunks if chunk.first <= number < chunk.stop)

    def __iter__(self) -> Iterator[Any]:
        """Yield the blocks; each alone waits for the pipeline, unlike `run_blocks` of all of them."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: int | slice) -> Any:
        """Return a block, or consecutive ones, to be called."""
        numbers = range(len(self))
        if isinstance(index, slice):
            return _SomeBlocks(self, numbers[index])
        return _SomeBlocks(self, range(numbers[index], numbers[index] + 1))

    def forward(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks."""
        return self.run(h, y_B)

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run all blocks on the rows of this rank, and return the output of these rows. Collective."""
        return self.run_range(h, y_B, 0, len(self))

    def run_range(self, h: Any, y_B: Tensor | None, first: int, stop: int) -> Any:
        """Run the blocks first to stop - 1. Collective."""
        chunks = [
            Chunk(max(chunk.first, first), min(chunk.stop, stop), chunk.rank)
            for chunk in self.chunks
            if chunk.first < stop and chunk.stop > first
        ]
        value, structure = _take_apart(h)
        # as `core.fakes.detached_fakes`: without a gradient, layers that mix samples see the whole batch
        is_whole = self.training and self._mixes and not torch.is_grad_enabled()
        rows = _RowSplit.of(self.ranks, len(value[0]), 1 if is_whole else self.micro_batches)
        labels = rows.gather(y_B)
        held = self._enter(value, rows, chunks[0].rank)
        route = [chunks[0].rank, *(chunk.rank for chunk in chunks), chunks[-1].rank]
        for number, chunk in enumerate(chunks):
            before, _, after = route[number : number + 3]
            structure = self._run_chunk(chunk, (before, after), held, rows, labels, structure)
        outputs = self._leave(held, rows, chunks[-1].rank)
        if not torch.is_grad_enabled():
            self.ranks.messages.flush()
        return _put_together(outputs, structure)

    def _enter(self, value: Sequence[Tensor], rows: _RowSplit, rank: int) -> list[list[Tensor]]:
        """Move the rows of all ranks to the first chunk; a backward only follows if one needs it."""
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
        rows: _RowSplit,
        labels: Sequence[Tensor | None],
        structure: Any,
    ) -> Any:
        """Run one chunk on all micro-batches, in place in `held`; return the structure of its output.

        ends: ranks that the input comes from and the output goes to.
        """
        before, after = ends
        here = chunk.rank
        for number, part in enumerate(rows.parts):
            value = held[number]
            if here == self.ranks.pipeline.rank:
                if before != here:
                    value = self._move(part, before, here)(value)
                out: Any = _put_together(value, structure)
                for block in self._blocks_of(chunk):
                    out = block(out, labels[number]) if self.takes_labels else block(out)
                value, found = _take_apart(out)
                produced = self._agree(chunk, structure, found)
                if after != here:
                    value = self._move(part, here, after)(value)
            else:
                produced = self._agree(chunk, structure, None)
                value = absent(_specs(produced), value)
            held[number] = value
        return produced

    def _move(self, part: _Part, source: int, target: int) -> RowMove:
        return RowMove(self.ranks.messages, part.all_on(source), part.all_on(target))

    def _blocks_of(self, chunk: Chunk) -> list[nn.Module]:
        return list(self.children())[chunk.first : chunk.stop]

    def _agree(self, chunk: Chunk, before: Any, found: Any) -> Any:
        """Return the structure of a chunk's output, which its rank sends once for each of its input."""
        autocast = [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]
        key = json.dumps([chunk.first, chunk.stop, before, autocast, self.training])
        if key not in self._structures:
            self._structures[key] = self.ranks.pipeline.gather(found)[chunk.rank]
        return self._structures[key]

    def _leave(self, held: Sequence[Sequence[Tensor]], rows: _RowSplit, rank: int) -> list[Tensor]:
        """Move the outputs to the ranks of their rows, each tensor in a node of its own."""
        moved: list[list[Tensor]] = []
        for part, value in zip(rows.parts, held, strict=True):
            back = RowMove(self.ranks.messages, part.all_on(rank), part.counts)
            moved.append(list(chain.from_iterable(back([tensor]) for tensor in value)))
        return [rows.in_order(pieces) for pieces in zip(*moved, strict=True)]


class _SomeBlocks(BlockRunner):
    """A slice of pipelined blocks."""

    def __init__(self, blocks: PipelinedBlocks, numbers: range) -> None:
        if numbers.step != 1:
            raise ConfigError("pipeline: blocks can be called in their order only; slice them without a step")
        self._blocks, self._numbers = blocks, numbers

    def __call__(self, h: Any, y_B: Tensor | None = None) -> Any:
        return self.run(h, y_B)

    def run(self, h: Any, y_B: Tensor | None = None) -> Any:
        """Run these blocks. Collective."""
        return self._blocks.run_range(h, y_B, self._numbers.start, self._numbers.stop)


@dataclass(frozen=True)
class _Part:
    """One micro-batch: the rows of each rank of the pipeline that are in it, and how many."""

    rows: tuple[slice, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, starts: Sequence[int], counts: Sequence[int], number: int, num: int) -> _Part:
        """Return micro-batch `number` of `num`. starts: the first row of each rank in the batch."""
        rows = tuple(slice((number - start) % num, None, num) for start in starts)
        return cls(rows, tuple(len(range(count)[of]) for of, count in zip(rows, counts, strict=True)))

    def all_on(self, rank: int) -> tuple[int, ...]:
        """Return the rows of each rank if one has all of them."""
        return tuple(sum(self.counts) * (number == rank) for number in range(len(self.counts)))


@dataclass(frozen=True)
class _RowSplit:
    """Division of the rows of a pipeline into micro-batches, without empty ones.

    counts: rows of each rank of the pipeline.
    """

    pipeline: World
    counts: tuple[int, ...]
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, ranks: StageRanks, count: int, num: int) -> _RowSplit:
        """Divide by row number modulo `num`. count: rows of this rank. Collective over all ranks.

        A batch without rows on any rank is one micro-batch.
        """
        everyone = ranks.world.gather(count)
        first = ranks.world.rank - ranks.pipeline.rank
        here = range(first, first + ranks.pipeline.size)
        starts = [sum(everyone[:rank]) for rank in here]
        counts = tuple(everyone[rank] for rank in here)
        parts = [_Part.of(starts, counts, number, num) for number in range(num)]
        return cls(ranks.pipeline, counts, tuple(part for part in parts if sum(part.counts)) or (parts[0],))

    def mine(self, part: _Part) -> slice:
        """Return the rows of this rank in a micro-batch."""
        return part.rows[self.pipeline.rank]

    def gather(self, y_B: Tensor | None) -> list[Tensor | None]:
        """Return the labels of the rows of all ranks, for each micro-batch. Collective."""
        if y_B is None:
            return [None] * len(self.parts)
        if y_B.requires_grad:
            problem = "pipeline: the second argument of run_blocks needs a gradient, but is sent without one"
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
        places = torch.tensor(list(chain.from_iterable(numbers[self.mine(part)] for part in self.parts)))
        return torch.cat(list(pieces))[places.argsort().to(pieces[0].device)]


def _take_apart(value: Any) -> tuple[list[Tensor], Any]:
    """Return the tensors of a nest of tuples, lists and None, and its structure, as JSON."""
    if isinstance(value, Tensor):
        return [value], {"row": list(value.shape[1:]), "dtype": str(value.dtype).removeprefix("torch.")}
    if value is None:
        return [], None
    if not isinstance(value, (tuple, list)):
        problem = f"pipeline: a block returned a {type(value).__name__}, which cannot be sent to another rank"
        raise ConfigError(f"{problem}; return a tensor, or a tuple of tensors")
    pieces = [_take_apart(member) for member in value]
    return list(chain.from_iterable(tensors for tensors, _ in pieces)), [structure for _, structure in pieces]


def _put_together(tensors: Sequence[Tensor], structure: Any) -> Any:
    """Return the nest of this structure; lists become tuples."""
    left = iter(tensors)

    def build(part: Any) -> Any:
        if part is None:
            return None
        return next(left) if isinstance(part, dict) else tuple(build(member) for member in part)

    return build(structure)


def _specs(structure: Any) -> list[Spec]:
    """Return row shape and dtype of the tensors of a structure."""
    if structure is None:
        return []
    if isinstance(structure, dict):
        return [(tuple(structure["row"]), getattr(torch, structure["dtype"]))]
    return list(chain.from_iterable(map(_specs, structure)))
