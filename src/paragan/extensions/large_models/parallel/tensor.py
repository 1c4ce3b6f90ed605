"""Tensor parallelism: some weights split over ranks, the others replicated, as under `ddp`.

Meant for class tables of very many rows, which one rank cannot hold. Each rank has rows of its own
(`layers/split.py`). Ranks of one group have the shards of a weight; with several groups, ranks of
equal number in them have equal shards.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paragan.core.capabilities import ALL, Capability
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.layout import local_shard
from paragan.core.option_types import Count
from paragan.core.phases import Phase, phase
from paragan.layers.cross_rank import convert
from paragan.layers.split import Split, class_tables, describe_splits, split_layers
from paragan.parallel import ddp
from paragan.parallel.base.fully_shard import build_sharded, check_steps_shards
from paragan.parallel.base.grad_norm import norm_of, norm_over
from paragan.parallel.base.placement import placement_of
from paragan.parallel.base.rank_groups import RankGroups, rank_groups
from paragan.parallel.base.strategy import NO_MEMORY_OPTIONS, MemoryOptions


@dataclass(frozen=True)
class Options:
    """Which layers of a network are split, and over how many ranks."""

    ranks: Count | None = None
    """Ranks that share a weight; a divisor of the player's ranks; null: all of them."""
    rows: Count = 10_000
    """Class tables with at least so many rows are split by rows."""
    outputs: tuple[str, ...] = ()
    """Layers split by outputs: patterns over their names, such as `blocks.0.linear`."""


class Strategy(ddp.Strategy):
    """Tensor parallelism of chosen layers, data parallelism of the rest."""

    capabilities = (
        ALL
        - {Capability.WHOLE_WEIGHTS, Capability.PART, Capability.PURE, Capability.OFFLOAD}
        - {Capability.PADDING, Capability.COMPILE, Capability.FORECAST}
    )
    options: Options

    def __init__(self, options: Options = Options(), memory: MemoryOptions = NO_MEMORY_OPTIONS) -> None:
        super().__init__(options, memory)

    def refusal(self, net: nn.Module, num_ranks: int) -> str:
        try:
            self._splits(net)
        except ConfigError as error:
            return str(error)
        return ""

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        if world.size == 1:
            return super().prepare(make, world)
        ranks = rank_groups(world, self.options.ranks, "tensor.ranks")

        def split(net: nn.Module) -> nn.Module:
            split_layers(net, ranks.group, self._splits(net))
            convert(net, world, self.memory.norm_ranks)
            return self.apply_memory_options(net)

        net = self.wrap(build_sharded(make, split), world)
        object.__setattr__(net, "_split_ranks", ranks)
        return net

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        if world.size == 1:
            return super().prepare_average(make, world)
        ranks = rank_groups(world, self.options.ranks, "tensor.ranks")
        return build_sharded(make, lambda net: split_layers(net, ranks.group, self._splits(net)))

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        check_steps_shards(policy, "tensor")
        pieces = {name: local_shard(weight.detach()).requires_grad_() for name, weight in net.named_parameters()}
        placement_of(net).shards = list(zip(net.parameters(), pieces.values(), strict=True))
        return self.optimizer_of(policy, pieces)

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        placement = placement_of(net)
        for weight, _ in placement.shards:
            # A split layer's backward has the gradient of all rows of its group: only copies are missing. The loss is
            # multiplied by the ranks, because DDP takes the mean over them.
            if isinstance(weight, DTensor) and weight.grad is not None and placement.world.size > 1:
                self._sum_over_copies(net, local_shard(weight.grad).div_(placement.world.size))
        grads = {name: local_shard(grad) for name, grad in super().finished_gradients(net).items()}
        if scale is not None and grads:  # of shards and others together
            torch._foreach_mul_(list(grads.values()), 1 / scale)
        # the optimiser steps the pieces of `optimizer`, which are in the order of the parameters
        for (name, _), (_, piece) in zip(net.named_parameters(), placement.shards, strict=True):
            piece.grad = grads.get(name)
        return grads

    def _sum_over_copies(self, net: nn.Module, grad: Tensor) -> None:
        """Sum the gradient of a shard over the ranks, one in each group, that have the same shard."""
        copies = _split_ranks(net).copies
        if copies.size > 1:
            copies.count("parameters", grad)
            with phase(Phase.COMMUNICATION):
                dist.all_reduce(grad, group=copies.group)

    def gradient_norm(self, net: nn.Module, grads: Mapping[str, Tensor]) -> Tensor:
        if placement_of(net).world.size == 1:
            return super().gradient_norm(net, grads)
        group = _split_ranks(net).group
        sharded = {name for name, weight in net.named_parameters() if isinstance(weight, DTensor)}
        grads_of_replicas = [grad for name, grad in grads.items() if name not in sharded]
        grads_of_shards = [grads[name] for name in grads.keys() & sharded]
        assert group.group is not None
        norm_of_shards = norm_over(grads_of_shards, group.group, group.device, group.count)
        return torch.hypot(norm_of(grads_of_replicas, group.device), norm_of_shards)

    def _splits(self, net: nn.Module) -> dict[str, Split]:
        """Return how each layer is split, by name. Raises `ConfigError` if none is."""
        splits = class_tables(net, self.options.rows)
        names = [name for name, _ in net.named_modules() if name]
        for pattern in self.options.outputs:
            matching = [name for name in names if fnmatchcase(name, pattern)]
            if not matching:
                raise ConfigError(
                    f"strategy tensor: no layer of {type(net).__name__} matches {pattern!r}; {describe_splits(net)}"
                )
            for name in matching:
                if splits.setdefault(name, Split.OUTPUTS) is Split.ROWS:
                    raise ConfigError(
                        f"strategy tensor: {name} is a class table, split by rows; leave it out of tensor.outputs"
                    )
        if not splits:
            raise ConfigError(
                f"strategy tensor: {type(net).__name__} has no class table of {self.options.rows:,} rows to split; "
                f"{describe_splits(net)}"
            )
        return splits


def _split_ranks(net: nn.Module) -> RankGroups:
    return cast(RankGroups, net._split_ranks)
