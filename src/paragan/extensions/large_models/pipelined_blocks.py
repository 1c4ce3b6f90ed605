"""Blocks of a network on the ranks of a pipeline, and the execution of their chain.

Every rank calls the network with rows of its own and receives the output of these rows: outside of
its blocks a network computes as under data parallelism. Inside, the rows of all ranks of the
pipeline go to the rank of the first stage, in micro-batches, from stage to stage, and the output of
each row returns to its rank.

The order is that of GPipe (Huang et al. 2019): all micro-batches of one stage, then those of the
next; one backward pass goes through all of them in reverse.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.layout import Layout
from paragan.extensions.large_models.nested_tensors import put_together, specs_of_structure, take_rows_apart
from paragan.extensions.large_models.network_parts import is_in_block
from paragan.extensions.large_models.pipeline_cuts import ChainedBlocks
from paragan.extensions.large_models.row_split import MicroBatch, RowSplit
from paragan.layers.random import RowDrawing, row_drawing_layers, uses_random_numbers, with_keys
from paragan.layers.update_once import UpdateOnce, mixes_samples
from paragan.parallel.base.rank_groups import RankGroups
from paragan.parallel.base.row_moves import Messages, RowMove, absent

_MICRO_BATCHES = 4


@dataclass(frozen=True)
class PipelineStage:
    """Consecutive blocks, first to stop - 1, on one rank of a pipeline."""

    first: int
    stop: int
    rank: int


class AbsentBlock(UpdateOnce):
    """A block that is on another rank. mixes_samples, draws: of that block."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.mixes_samples = mixes_samples(block)
        self.draws = uses_random_numbers(block)


class PipelinedBlocks(ChainedBlocks, RowDrawing):
    """`net.blocks` of a pipelined network: this rank's blocks, under their numbers.

    micro_batches: row r of the batch is in number r modulo that, as in accumulation; None: 4, or 1
    for blocks that mix the samples of a batch. Layers that draw use keys of the rows of all ranks.
    """

    def __init__(
        self,
        blocks: nn.ModuleList | nn.Sequential,
        edges: Sequence[int],
        ranks: RankGroups,
        messages: Messages,
        micro_batches: int | None,
    ) -> None:
        super().__init__()
        self.stages = [PipelineStage(first, stop, rank) for rank, (first, stop) in enumerate(pairwise(edges))]
        self.ranks = ranks
        self.messages = messages
        self._structures: dict[str, Any] = {}  # by kind of input: after the first call ranks need no message
        for number, block in enumerate(blocks.children()):
            is_local = self.stage_of(number) == ranks.group.rank
            self.add_module(str(number), block if is_local else AbsentBlock(block))
        self.draws = any(map(uses_random_numbers, self.children()))
        self._mixes = mixes_samples(self)
        # the statistics of batch norm would be those of a micro-batch
        self.micro_batches = micro_batches or (1 if self._mixes else _MICRO_BATCHES)

    def stage_of(self, number: int) -> int:
        """Return the rank of a block in its pipeline."""
        return next(stage.rank for stage in self.stages if stage.first <= number < stage.stop)

    def with_stages(self, layout: Layout) -> Layout:
        """Return the layout of a network with the stage of each tensor of a block."""
        stages = {name: self.stage_of(int(name.split(".")[1])) for name in layout if is_in_block(name)}
        return {**layout, **{name: replace(layout[name], stage=stage) for name, stage in stages.items()}}

    def run_range(self, h: Any, labels: Sequence[Tensor | None], numbers: range) -> Any:
        """Run consecutive blocks on this rank's rows; return the output of these rows. Collective."""
        first = numbers.start
        stop = numbers.stop
        # a network may call some of its blocks, which may begin or end within a stage
        stages = [
            PipelineStage(max(stage.first, first), min(stage.stop, stop), stage.rank)
            for stage in self.stages
            if stage.first < stop and stage.stop > first
        ]
        value, structure = take_rows_apart(h)
        # as `core.fakes.detached_fakes`: without a gradient, layers mix samples of the whole batch
        is_whole = self.training and self._mixes and not torch.is_grad_enabled()
        rows = RowSplit.of(self.ranks, len(value[0]), 1 if is_whole else self.micro_batches)
        self.messages.flush()  # all ranks are here, so what was sent before has arrived
        gathered_labels = [rows.gather(y_B) for y_B in labels]
        keys = rows.gather(self.keys_B if self.draws else None)
        values = self._enter(value, rows, stages[0].rank)
        for stage in stages:
            # the ranks before and after it; the first and the last stage are their own
            ends = (max(stage.rank - 1, stages[0].rank), min(stage.rank + 1, stages[-1].rank))
            structure = self._run_stage(stage, ends, values, rows, keys, gathered_labels, structure)
        outputs = self._leave(values, rows, stages[-1].rank)
        if not torch.is_grad_enabled():  # no turn follows, which flushes after its backward
            self.messages.flush()
        return put_together(outputs, structure)

    def _enter(self, value: Sequence[Tensor], rows: RowSplit, rank: int) -> list[list[Tensor]]:
        """Move the rows of all ranks to the first stage; return its tensors of each micro-batch.

        A backward follows if a rank needs it.
        """
        values = []
        for part in rows.parts:
            move = RowMove(self.messages, part.counts, part.all_on(rank), is_recorded_always=False)
            values.append(move([tensor[rows.local_rows(part)] for tensor in value]))
        return values

    def _run_stage(
        self,
        stage: PipelineStage,
        ends: tuple[int, int],
        values: list[list[Tensor]],
        rows: RowSplit,
        keys: Sequence[Tensor | None],
        labels: Sequence[Sequence[Tensor | None]],
        structure: Any,
    ) -> Any:
        """Run one stage on all micro-batches, and put its output into `values`; return the output's structure.

        ends: ranks that the input comes from and the output goes to. keys: of layers that draw, by micro-batch, as the
        tensors of each of `labels`.
        """
        layers = list(chain.from_iterable(map(row_drawing_layers, self._blocks_of(stage))))
        for number, part in enumerate(rows.parts):
            value = values[number]
            if stage.rank == self.ranks.group.rank:
                # rows are received just before they are used, and sent just after: other ranks compute meanwhile
                if ends[0] != stage.rank:
                    value = self._move(part, ends[0], stage.rank)(value)
                out: Any = put_together(value, structure)
                with with_keys(layers, keys[number]):
                    for block in self._blocks_of(stage):
                        out = block(out, *(of_parts[number] for of_parts in labels))
                value, new_structure = self._take_output_apart(out, sum(part.counts), stage, structure)
                if ends[1] != stage.rank:
                    value = self._move(part, stage.rank, ends[1])(value)
            else:
                # tensors of no rows carry the graph, so that this rank's backward reaches all moves, too
                new_structure = self._agree(stage, structure, None)
                value = absent(specs_of_structure(new_structure), value)
            values[number] = value
        return new_structure

    def _move(self, part: MicroBatch, source: int, target: int) -> RowMove:
        return RowMove(self.messages, part.all_on(source), part.all_on(target))

    def _blocks_of(self, stage: PipelineStage) -> list[nn.Module]:
        return list(self.children())[stage.first : stage.stop]

    def _take_output_apart(self, out: Any, count: int, stage: PipelineStage, input_structure: Any) -> Any:
        """Return the tensors of a stage's output, and its structure."""
        try:
            value, structure = take_rows_apart(out, count)
        except ConfigError as error:  # all ranks must raise it, or they would wait for rows of this one
            self._agree(stage, input_structure, str(error))
            raise
        return value, self._agree(stage, input_structure, structure)

    def _agree(self, stage: PipelineStage, input_structure: Any, structure: Any) -> Any:
        """Return the structure of a stage's output, which its rank sends once per kind of input.

        structure: known to that rank; a text is the message of an error, which all ranks raise.
        """
        autocast = torch.is_autocast_enabled(self.ranks.group.device.type)
        # what a structure depends on: ranks agree without a message whether theirs is known
        key = json.dumps([stage.first, stage.stop, input_structure, autocast, self.training])
        if key not in self._structures:
            sent = self.ranks.group.gather(structure)[stage.rank]  # others cannot know shapes of blocks they lack
            if isinstance(sent, str):
                raise ConfigError(sent)
            self._structures[key] = sent
        return self._structures[key]

    def _leave(self, values: Sequence[Sequence[Tensor]], rows: RowSplit, rank: int) -> list[Tensor]:
        """Move the outputs to the ranks of their rows, each tensor in a node of its own."""
        moved: list[list[Tensor]] = []
        for part, value in zip(rows.parts, values, strict=True):
            # The adjoint of `_enter`, but recorded on all ranks: a loss on any rank's rows reaches the last stage.
            back = RowMove(self.messages, part.all_on(rank), part.counts)
            moved.append(list(chain.from_iterable(back([tensor]) for tensor in value)))
        return [rows.in_order(pieces) for pieces in zip(*moved, strict=True)]


def check_stages(net: nn.Module, edges: Sequence[int]) -> None:
    """Raise `ConfigError` for a rank without weights to train. edges: of stages."""
    names = [name for name, weight in net.named_parameters() if weight.requires_grad]
    trained = {name.split(".")[1] if is_in_block(name) else "" for name in names}
    for rank, (first, stop) in enumerate(pairwise(edges)):
        blocks = list(map(str, range(first, stop)))
        if trained.isdisjoint({"", *blocks}):  # "": weights outside of blocks, which every rank has
            where = f"in blocks {', '.join(blocks)} of {type(net).__name__}"
            raise ConfigError(
                f"strategy pipeline: rank {rank} has no weight to train: none is {where}; "
                "pass other cuts, or fewer stages"
            )
