"""Pipeline: the blocks of a network on several ranks, and copies of the pipeline on further ranks.

Each rank has rows of its own, as under `ddp`, and every one of them is a stage of one pipeline
(`_pipelined_blocks`). The other player may have any strategy. Ranks with the same stage are
replicas, under `data`: `ddp` and `zero1` to `zero3` as for whole networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.layout import Layout, Shape
from paragan.core.network_factory import NetworkFactory
from paragan.core.option_types import Count
from paragan.core.pieces import StoredTensors, shapes_of
from paragan.core.protocols import Network, Turn
from paragan.core.traffic import Collective
from paragan.core.types import Can, LossTerms, Side
from paragan.layers.all_reduce import ReduceGroup
from paragan.layers.update_once import mixing_layers
from paragan.parallel import ddp, none, zero1, zero2, zero3
from paragan.parallel._forward_backward import Reduction
from paragan.parallel._fully_shard import build_sharded
from paragan.parallel._pipeline_cuts import refuse_invalid_cuts
from paragan.parallel._pipelined_blocks import PipelinedBlocks
from paragan.parallel._stage_ranks import StageRanks, stage_ranks
from paragan.parallel.none import NO_MEMORY_OPTIONS, MemoryOptions

_OF_COPIES = {"ddp": ddp, "zero1": zero1, "zero2": zero2, "zero3": zero3}


@dataclass(frozen=True)
class Options:
    """Pipeline over the blocks of a network."""

    stages: Count | None = None
    """Ranks of one pipeline; a divisor of the player's ranks; null: all of them."""
    chunks: Count = 1
    """Chunks of blocks per rank; more than one makes the schedule interleaved."""
    micro_batches: Count = 4
    """Micro-batches of each call of the network."""
    cuts: tuple[Count, ...] | None = None
    """Numbers of the blocks that begin the second and later chunks; null: equal counts."""
    data: Literal["ddp", "zero1", "zero2", "zero3"] = "ddp"
    """Strategy of the ranks that have the same stage."""


class Strategy(none.Strategy):
    """Pipeline over the blocks of a network."""

    can = frozenset(Can) - {Can.WHOLE_WEIGHTS}
    joins_ranks = True
    options: Options

    def __init__(self, options: Options = Options(), memory: MemoryOptions = NO_MEMORY_OPTIONS) -> None:
        super().__init__(options, memory)
        self._copies = _OF_COPIES[options.data].Strategy(None, memory)

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        if self.memory.norm_ranks is not None:
            problem = "norm_ranks is not supported by strategy pipeline, whose batch norm has the statistics of a"
            raise ConfigError(f"{problem} micro-batch on all ranks; leave it out, or set micro_batches of the strategy")
        ranks = stage_ranks(world, self.options.stages)
        return self._copies.prepare(self._cut_network(make, ranks), ranks.copies)

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        ranks = stage_ranks(world, self.options.stages)
        return self._copies.prepare_average(self._cut_network(make, ranks), ranks.copies)

    def training_module(self, net: nn.Module) -> nn.Module:
        return self._copies.training_module(net)

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        here = {name for name, _ in net.named_parameters()}
        elsewhere = [name for name in self.parameter_names(net) if name not in here]
        return self._copies.optimizer(replace(policy, elsewhere=elsewhere) if elsewhere else policy, net)

    def forward_backward(
        self, turn: Turn, nets: Mapping[Side, Network], parts: int, scale: Tensor | None = None
    ) -> LossTerms:
        terms = super().forward_backward(turn, nets, parts, scale)
        _placed(nets[turn.side].module).ranks.messages.flush()
        return terms

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        ranks = _placed(net).ranks
        of_copies = self._copies.reduction(turn, net)
        differentiates = any(Can.DOUBLE_BACKWARD in penalty.needs for penalty in turn.penalties)

        @contextmanager
        def around(last: bool) -> Iterator[None]:
            ranks.messages.tokens = [] if differentiates else None
            with of_copies.around(last):
                yield
            ranks.messages.tokens = None

        world = ranks.world
        across = None if world.size == 1 else ReduceGroup(world.group, "a penalty", world.count)
        return replace(of_copies, around=around, across=across)

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        gradient = self._copies.input_gradient(net, out_B, x, scale)
        # A backward from here must reach all moves, or none, on every rank.
        for token in _placed(net).ranks.messages.tokens or ():
            gradient = gradient + token.sum().to(gradient.dtype)
        return gradient

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        grads = self._copies.finished_gradients(net, scale)
        pipeline = _placed(net).ranks.pipeline
        for name, grad in grads.items():
            if pipeline.size > 1 and not _is_in_block(name):  # so far of the rows of this rank
                pipeline.count("parameters", grad)
                dist.all_reduce(grad, group=pipeline.group)
        return grads

    def gradient_norm(self, net: nn.Module, grads: Mapping[str, Tensor]) -> Tensor:
        pipeline = _placed(net).ranks.pipeline
        if pipeline.size == 1:
            return self._copies.gradient_norm(net, grads)  # bit-equal to a run without ranks
        # weights outside of the blocks are on all ranks, and count once
        mine = {name: grad for name, grad in grads.items() if _is_in_block(name) or not pipeline.rank}
        squared = self._copies.gradient_norm(net, mine).square()
        pipeline.count("control", squared)
        dist.all_reduce(squared, group=pipeline.group)
        return squared.sqrt()

    def after_step(self, net: nn.Module) -> None:
        self._copies.after_step(net)

    def device(self, net: nn.Module) -> torch.device:
        return self._copies.device(net)

    def world(self, net: nn.Module) -> World:
        return _placed(net).ranks.world

    def layout(self, net: nn.Module) -> Layout:
        return self._with_stage(net, self._copies.layout(net))

    def optimizer_layout(self, net: nn.Module) -> Layout:
        return self._with_stage(net, self._copies.optimizer_layout(net))

    def shapes(self, net: nn.Module) -> dict[str, Shape]:
        return dict(_placed(net).shapes)

    def parameter_names(self, net: nn.Module) -> list[str]:
        return list(_placed(net).parameters)

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        placed = _placed(net)
        here = self._copies.weights(net)
        pipeline = placed.ranks.pipeline
        dtypes = pipeline.gather({name: str(value.dtype).removeprefix("torch.") for name, value in here.items()})
        found = {}
        for name, shape in placed.shapes.items():
            stage = next(rank for rank, names in enumerate(dtypes) if name in names)
            dtype = getattr(torch, dtypes[stage][name])
            value = here[name].contiguous() if stage == pipeline.rank else torch.empty(shape, dtype=dtype)
            value = value.to(pipeline.device)
            if pipeline.size > 1:
                pipeline.count("parameters", value, collective=Collective.BROADCAST)
                dist.broadcast(value, group_src=stage, group=pipeline.group)
            found[name] = value
        return found

    def load(self, net: nn.Module, weights: StoredTensors) -> None:
        self._copies.load(net, weights)

    def _cut_network(self, make: Callable[[], nn.Module], ranks: StageRanks) -> Callable[[], nn.Module]:
        """Return a factory of this rank's part of the network, which never holds the others' weights."""
        if isinstance(make, NetworkFactory):
            construct = make.construct
            return _PartFactory(lambda: self._cut(construct(), ranks), make.fill, make.device)
        return lambda: self._cut(make(), ranks)

    def _cut(self, net: nn.Module, ranks: StageRanks) -> nn.Module:
        shapes = shapes_of(net.state_dict())
        parameters = tuple(name for name, _ in net.named_parameters())
        object.__setattr__(net, "_pipelined", _Placed(ranks, shapes, parameters))
        if ranks.pipeline.size > 1:
            blocks = _blocks_to_cut(net)
            edges = self._edges(len(list(blocks.children())), ranks.pipeline.size)
            net.blocks = PipelinedBlocks(blocks, edges, ranks, self.options.micro_batches)
        return net

    def _edges(self, num_blocks: int, stages: int) -> tuple[int, ...]:
        """Return where chunks begin and end."""
        chunks = stages * self.options.chunks
        cuts = self.options.cuts
        if cuts is None:
            cuts = tuple(num_blocks * number // chunks for number in range(1, chunks))
        refuse_invalid_cuts(cuts, num_blocks, chunks)
        return (0, *cuts, num_blocks)

    def _with_stage(self, net: nn.Module, layout: Layout) -> Layout:
        blocks = getattr(net, "blocks", None)
        if not isinstance(blocks, PipelinedBlocks):
            return layout
        found = dict(layout)
        for name, box in layout.items():
            if _is_in_block(name):
                found[name] = replace(box, stage=blocks.stage_of(int(name.split(".")[1])))
        return found


@dataclass(frozen=True)
class _Placed:
    """What a pipelined network is part of: ranks, shapes of all tensors, names of all parameters."""

    ranks: StageRanks
    shapes: Mapping[str, Shape]
    parameters: Sequence[str]


def _is_in_block(name: str) -> bool:
    return name.startswith("blocks.")


def _placed(net: nn.Module) -> _Placed:
    inner = net.module if isinstance(net, DistributedDataParallel) else net
    return cast(_Placed, inner._pipelined)


class _PartFactory(NetworkFactory):
    """Factory of a part of a network, whose other weights have no memory at any time."""

    def __call__(self) -> nn.Module:
        return super().__call__() if self.fill is None else build_sharded(self, lambda net: net)


def _blocks_to_cut(net: nn.Module) -> nn.ModuleList | nn.Sequential:
    """Return the blocks of a network; raise `ConfigError` if they cannot be on several ranks."""
    name = type(net).__name__
    declared = getattr(net, "blocks", None)
    if not isinstance(declared, (nn.ModuleList, nn.Sequential)):
        problem = f"strategy pipeline needs the attribute `blocks` of {name}, an nn.ModuleList or nn.Sequential"
        raise ConfigError(f"{problem}, run by paragan.layers.blocks.run_blocks; add it, or use zero3")
    inside = set(declared.modules())
    mixing = [key for key, module in net.named_modules() if module in mixing_layers(net) - inside]
    if mixing:
        raise ConfigError(
            f"strategy pipeline: {name} has layers outside of its blocks that mix samples ({', '.join(mixing[:3])}); "
            "move them into a block, or use ddp"
        )
    owners = Counter(chain.from_iterable({id(p) for p in block.parameters()} for block in declared.children()))
    if max(owners.values(), default=0) > 1:
        raise ConfigError(f"strategy pipeline: blocks of {name} share a weight; use zero3")
    return declared
