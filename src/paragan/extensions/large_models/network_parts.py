"""The part of a network that is on one rank of a pipeline."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from paragan.core.dist import Collective
from paragan.core.errors import ConfigError
from paragan.core.layout import Shape, local_shard
from paragan.core.network_factory import NetworkFactory
from paragan.core.source import dtype_name
from paragan.extensions.large_models.pipeline_cuts import NEARLY_EQUAL, balanced_cuts, block_costs, check_cuts
from paragan.layers.update_once import mixing_layers
from paragan.parallel.base.fully_shard import build_sharded
from paragan.parallel.base.placement import placement_of
from paragan.parallel.base.rank_groups import RankGroups
from paragan.parallel.base.row_moves import Messages
from paragan.parallel.base.strategy import Strategy


@dataclass(frozen=True)
class PipelinedNetwork:
    """A pipelined network as a whole: its ranks, shapes of all tensors, names of all parameters."""

    ranks: RankGroups
    messages: Messages
    shapes: Mapping[str, Shape]
    parameters: Sequence[str]

    @contextmanager
    def backward_passes(self, differentiates: bool) -> Iterator[None]:
        """Enclose a micro-batch of a turn. differentiates: whether input gradients get a graph."""
        self.messages.tokens = [] if differentiates else None
        try:
            yield
        finally:
            self.messages.tokens = None


def is_in_block(name: str) -> bool:
    """Return whether a parameter or buffer of this name is in a block."""
    return name.startswith("blocks.")


def pipelined(net: nn.Module) -> PipelinedNetwork:
    """Return what a network, or its wrapper, is a part of."""
    inner = net.module if isinstance(net, DistributedDataParallel) else net
    return cast(PipelinedNetwork, inner._pipelined)


class PartFactory(NetworkFactory):
    """Factory of a part of a network, whose other weights have no memory at any time."""

    def __call__(self) -> nn.Module:
        return super().__call__() if self.fill is None else build_sharded(self, lambda net: net)


def blocks_to_cut(net: nn.Module) -> nn.ModuleList | nn.Sequential:
    """Return the blocks of a network; raise `ConfigError` if they cannot be on several ranks."""
    name = type(net).__name__
    declared = getattr(net, "blocks", None)
    if not isinstance(declared, (nn.ModuleList, nn.Sequential)):
        problem = f"strategy pipeline needs the attribute `blocks` of {name}, an nn.ModuleList or nn.Sequential"
        raise ConfigError(f"{problem}, run by paragan.layers.blocks.run_blocks; add it, or use zero3")
    mixing_outside = mixing_layers(net) - set(declared.modules())
    mixing = [key for key, module in net.named_modules() if module in mixing_outside]
    if mixing:
        raise ConfigError(
            f"strategy pipeline: {name} has layers outside of its blocks that mix samples ({', '.join(mixing[:3])}); "
            "move them into a block, or use ddp"
        )
    weights = [{id(weight) for weight in block.parameters()} for block in declared.children()]
    if max(Counter(chain.from_iterable(weights)).values(), default=0) > 1:  # a weight in two of these sets
        raise ConfigError(f"strategy pipeline: blocks of {name} share a weight; use zero3")
    return declared


def stage_edges(
    blocks: nn.Module, stages: int, cuts: tuple[int, ...] | None, make: NetworkFactory | None = None
) -> tuple[int, ...]:
    """Return where the stages of blocks begin and end. cuts: None: by the estimated work of the blocks.

    make: factory whose inputs are used for the estimate; without them, stages have equal counts of blocks.
    """
    num_blocks = len(list(blocks.children()))
    if cuts is None and make is not None and make.inputs is not None:
        with torch.device("meta"):
            net = make.construct()
        cuts = balanced_cuts(block_costs(net, make.inputs(net)), stages, NEARLY_EQUAL)
    elif cuts is None:
        cuts = tuple(num_blocks * stage // stages for stage in range(1, stages))
    check_cuts(cuts, num_blocks, stages)
    return (0, *cuts, num_blocks)


def collect_weights(placed: PipelinedNetwork, local: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all parameters and buffers of a network. local: those of this rank. Collective."""
    pipeline = placed.ranks.group
    # by rank: which tensors it has, and their types
    dtypes = pipeline.gather({name: dtype_name(value.dtype) for name, value in local.items()})
    weights = {}
    for name, shape in placed.shapes.items():
        stage = next(rank for rank, names in enumerate(dtypes) if name in names)
        dtype = getattr(torch, dtypes[stage][name])
        value = local[name].contiguous() if stage == pipeline.rank else torch.empty(shape, dtype=dtype)
        value = value.to(pipeline.device)
        if pipeline.size > 1:
            pipeline.count("parameters", value, collective=Collective.BROADCAST)
            dist.broadcast(value, group_src=stage, group=pipeline.group)
        weights[name] = value
    return weights


def zero_gradient(copies: Strategy, net: nn.Module, name: str) -> Tensor:
    """Give a weight, and what the optimiser steps for it, a gradient of zeros; return it.

    All are views of one memory: the caller adds the gradients of other ranks to the result in place.
    """
    weight = net.get_parameter(name)
    weight.grad = torch.zeros_like(weight)
    grad = local_shard(weight.grad)
    for whole, piece in placement_of(net).shards:  # none where the optimiser steps whole weights
        if whole is weight:
            piece.grad = grad if isinstance(weight, DTensor) else copies.optimizer_layout(net)[name].cut(grad)
    return grad
