"""Pipeline: the blocks of a network on several ranks, and copies of the pipeline on further ranks.

Each rank has rows of its own, as under `ddp`, and every one of them is a stage of one pipeline
(`pipelined_blocks.py`). The other player may have any strategy. Ranks with the same stage are
copies of it, under the strategy of the option `data`, as whole networks are.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paragan.core.capabilities import ALL, Capability
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.layout import Layout, Shape, StoredTensors, shapes_of
from paragan.core.network_factory import NetworkFactory
from paragan.core.option_types import Count
from paragan.core.phases import Phase, phase
from paragan.core.protocols import Turn
from paragan.extensions.large_models.network_parts import (
    PartFactory,
    PipelinedNetwork,
    blocks_to_cut,
    collect_weights,
    is_in_block,
    pipelined,
    stage_edges,
    zero_gradient,
)
from paragan.extensions.large_models.pipelined_blocks import PipelinedBlocks, check_stages
from paragan.layers.all_reduce import ReduceGroup
from paragan.parallel import ddp, zero1, zero2, zero3
from paragan.parallel.base import strategy
from paragan.parallel.base.rank_groups import RankGroups, rank_groups
from paragan.parallel.base.reduction import Reduction
from paragan.parallel.base.row_moves import Messages
from paragan.parallel.base.strategy import NO_MEMORY_OPTIONS, MemoryOptions

_STRATEGIES_OF_COPIES = {"ddp": ddp, "zero1": zero1, "zero2": zero2, "zero3": zero3}


@dataclass(frozen=True)
class Options:
    """Pipeline over the blocks of a network."""

    stages: Count | None = None
    """Ranks of one pipeline; a divisor of the player's ranks; null: all of them."""
    micro_batches: Count | None = None
    """Micro-batches of each call of the network; null: 4, or 1 where layers mix the samples of a batch.

    Batch norm then has the statistics of a micro-batch, as in accumulation.
    """
    cuts: tuple[Count, ...] | None = None
    """Numbers of the blocks that begin the second and later stages.

    null: so that the longest stage has the least estimated work; for networks of outside code, equal
    counts of blocks.
    """
    data: Literal["ddp", "zero1", "zero2", "zero3"] = "ddp"
    """Strategy of the ranks that have the same stage."""


class Strategy(strategy.Strategy):
    """Pipeline over the blocks of a network."""

    capabilities = (
        ALL
        - {Capability.WHOLE_WEIGHTS, Capability.PART, Capability.PADDING, Capability.COMPILE}
        - {Capability.FORECAST, Capability.NORM_RANKS, Capability.LAYER_GRADIENTS}
    )
    options: Options

    def __init__(self, options: Options = Options(), memory: MemoryOptions = NO_MEMORY_OPTIONS) -> None:
        super().__init__(options, memory)
        self._copies = _STRATEGIES_OF_COPIES[options.data].Strategy(None, memory)
        self.capabilities = self.capabilities & self._copies.capabilities

    def refusal(self, net: nn.Module, num_ranks: int) -> str:
        stages = num_ranks if self.options.stages is None else self.options.stages
        try:
            if stages > 1:
                stage_edges(blocks_to_cut(net), stages, self.options.cuts)
        except ConfigError as error:
            return str(error)
        return ""

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        ranks = rank_groups(world, self.options.stages, "pipeline.stages")
        return self._copies.prepare(self._cut_network(make, ranks), ranks.copies)

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        ranks = rank_groups(world, self.options.stages, "pipeline.stages")
        return self._copies.prepare_average(self._cut_network(make, ranks), ranks.copies)

    def training_module(self, net: nn.Module) -> nn.Module:
        return self._copies.training_module(net)

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        local = {name for name, _ in net.named_parameters()}
        elsewhere = [name for name in self.parameter_names(net) if name not in local]
        return self._copies.optimizer(replace(policy, elsewhere=elsewhere) if elsewhere else policy, net)

    def around_turn(self, turn: Turn, net: nn.Module) -> AbstractContextManager[None]:
        return self._copies.around_turn(turn, net)

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        network = pipelined(net)
        of_copies = self._copies.reduction(turn, net)
        differentiates = any(Capability.DOUBLE_BACKWARD in penalty.needs for penalty in turn.penalties)

        @contextmanager
        def sync_context(last: bool) -> Iterator[None]:
            with of_copies.sync_context(last), network.backward_passes(differentiates):
                yield
            network.messages.flush()  # gloo completes a send only in a wait; by now its receiver has it

        world = network.ranks.world
        across = None if world.size == 1 else ReduceGroup(world.group, "a penalty", world.count)
        return replace(of_copies, sync_context=sync_context, across=across)

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        gradient = self._copies.input_gradient(net, out_B, x, scale)
        # A backward from this gradient must reach all moves of rows, or none, on every rank: each move has a token.
        for token in pipelined(net).messages.tokens or ():
            gradient = gradient + token.sum().to(gradient.dtype)
        return gradient

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        grads = self._copies.finished_gradients(net, scale)
        outside = [name for name, _ in net.named_parameters() if not is_in_block(name)]
        pipeline = pipelined(net).ranks.group
        if pipeline.size == 1 or not outside:
            return grads
        # So far of the rows of this rank; they add up, as losses are sums. Ranks of one pipeline have the same number
        # among the copies, so the same shard. A network may reach some of these weights on some ranks only.
        reached = set(chain.from_iterable(pipeline.gather([name for name in outside if name in grads])))
        for name in [name for name in outside if name in reached]:
            if name not in grads:
                grads[name] = zero_gradient(self._copies, net, name)
            pipeline.count("parameters", grads[name])
            with phase(Phase.COMMUNICATION):
                dist.all_reduce(grads[name], group=pipeline.group)
        return grads

    def gradient_norm(self, net: nn.Module, grads: Mapping[str, Tensor]) -> Tensor:
        pipeline = pipelined(net).ranks.group
        if pipeline.size == 1:
            return self._copies.gradient_norm(net, grads)  # bit-equal to a run without ranks
        # weights outside of the blocks are on all ranks, and count once
        counted = {name: grad for name, grad in grads.items() if is_in_block(name) or pipeline.rank == 0}
        squared = self._copies.gradient_norm(net, counted).square()
        return pipeline.sum(squared).sqrt()

    def after_step(self, net: nn.Module) -> None:
        self._copies.after_step(net)

    def device(self, net: nn.Module) -> torch.device:
        return self._copies.device(net)

    def world(self, net: nn.Module) -> World:
        return pipelined(net).ranks.world

    def layout(self, net: nn.Module) -> Layout:
        return self._with_stage(net, self._copies.layout(net))

    def optimizer_layout(self, net: nn.Module) -> Layout:
        return self._with_stage(net, self._copies.optimizer_layout(net))

    def shapes(self, net: nn.Module) -> dict[str, Shape]:
        return dict(pipelined(net).shapes)

    def parameter_names(self, net: nn.Module) -> list[str]:
        return list(pipelined(net).parameters)

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        return collect_weights(pipelined(net), self._copies.weights(net))

    def load(self, net: nn.Module, weights: StoredTensors) -> None:
        self._copies.load(net, weights)

    def _cut_network(self, make: Callable[[], nn.Module], ranks: RankGroups) -> Callable[[], nn.Module]:
        """Return a factory of this rank's part of a network, without memory for other weights."""
        if isinstance(make, NetworkFactory):
            construct = make.construct
            return PartFactory(lambda: self._cut(construct(), ranks, make), make.fill, make.device)
        return lambda: self._cut(make(), ranks)

    def _cut(self, net: nn.Module, ranks: RankGroups, make: NetworkFactory | None = None) -> nn.Module:
        """Replace the blocks of a network by those of this rank's stage."""
        shapes = shapes_of(net.state_dict())
        parameters = tuple(name for name, _ in net.named_parameters())
        messages = Messages(ranks.group)
        # not `net._pipelined = …`: `nn.Module` declares its `__setattr__` for tensors and modules alone
        object.__setattr__(net, "_pipelined", PipelinedNetwork(ranks, messages, shapes, parameters))
        if ranks.group.size > 1:
            blocks = blocks_to_cut(net)
            edges = stage_edges(blocks, ranks.group.size, self.options.cuts, make)
            check_stages(net, edges)
            net.blocks = PipelinedBlocks(
                blocks=blocks, edges=edges, ranks=ranks, messages=messages, micro_batches=self.options.micro_batches
            )
        return net

    def _with_stage(self, net: nn.Module, layout: Layout) -> Layout:
        blocks = getattr(net, "blocks", None)
        return blocks.with_stages(layout) if isinstance(blocks, PipelinedBlocks) else layout
