"""The part of a network that is on one rank of a pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paragan.core.errors import ConfigError
from paragan.core.layout import Shape
from paragan.core.network_factory import NetworkFactory
from paragan.layers.update_once import mixing_layers
from paragan.parallel._block_costs import block_costs, estimate_work
from paragan.parallel._fully_shard import build_sharded
from paragan.parallel._pipeline_cuts import NEARLY_EQUAL, BlockCost, balanced_cuts, refuse_invalid_cuts
from paragan.parallel._rank_groups import RankGroups
from paragan.parallel._row_moves import Messages


@dataclass(frozen=True)
class PipelinedNetwork:
    """A pipelined network as a whole: its ranks, shapes of all tensors, names of all parameters."""

    ranks: RankGroups
    messages: Messages
    shapes: Mapping[str, Shape]
    parameters: Sequence[str]


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


def chunk_edges(
    blocks: nn.Module, chunks: int, cuts: tuple[int, ...] | None, make: NetworkFactory | None = None
) -> tuple[int, ...]:
    """Return where chunks of blocks begin and end. cuts: None: balanced.

    make: to estimate the work of a call; if it cannot, chunks have equal counts of blocks.
    """
    number = len(list(blocks.children()))
    if cuts is None and make is not None and make.inputs is not None:
        cuts = balanced_cuts(_estimated_work(make), chunks, NEARLY_EQUAL)
    elif cuts is None:
        cuts = tuple(number * chunk // chunks for chunk in range(1, chunks))
    refuse_invalid_cuts(cuts, number, chunks)
    return (0, *cuts, number)


def _estimated_work(make: NetworkFactory) -> list[BlockCost]:
    """Return the estimated work of each block."""
    assert make.inputs is not None
    with torch.device("meta"):
        net = make.construct()
    return block_costs(net, make.inputs(net), estimate_work)
