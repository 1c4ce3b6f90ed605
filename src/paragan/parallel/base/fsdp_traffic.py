"""Bytes and waits of FSDP2: its all-gathers of weights and reduce-scatters of gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from paragan.core.dist import Collective, World
from paragan.core.phases import Phase, phase


def count_traffic(net: nn.Module, world: World, num_replicas: int = 1) -> None:
    """Count the bytes of every collective of a sharded network in `world`, and its time as communication.

    FSDP2 calls these objects in place of torch's functions, with the same tensors: a rank's shards
    of a block at each all-gather (once per forward; again in its backward if it was resharded
    after the forward), a block's whole gradients at each reduce-scatter. num_replicas: of `hsdp`,
    over which the scattered gradients are all-reduced. With one rank nothing is counted.
    """
    for module in net.modules():
        if isinstance(module, FSDPModule) and world.size > 1:
            module.set_custom_all_gather(_CountedAllGather(world))  # type: ignore[arg-type]
            module.set_custom_reduce_scatter(_CountedReduceScatter(world, num_replicas))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Buffers:
    """Allocator of the tensors that are communicated."""

    world: World

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def count(self, tensor: Tensor, collective: Collective, num_ranks: int) -> None:
        if num_ranks > 1:
            self.world.count("parameters", tensor, collective=collective, num_ranks=num_ranks)


class _CountedAllGather(_Buffers):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        self.count(input_tensor, Collective.ALL_GATHER, group.size())
        with phase(Phase.COMMUNICATION):
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


@dataclass(frozen=True)
class _CountedReduceScatter(_Buffers):
    num_replicas: int

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        self.count(input_tensor, Collective.REDUCE_SCATTER, group.size())
        self.count(output_tensor, Collective.ALL_REDUCE, self.num_replicas)
        with phase(Phase.COMMUNICATION):
            return dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
