"""ZeRO stage 1: replicated weights and gradients, sharded optimiser state and weight average.

Rajbhandari et al. 2020, section 5.1. Each rank steps its shard of every weight, a view, and the shards are
all-gathered: one exchange of weights per update in addition to that of gradients. Frozen weights are not exchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.dist import Collective, RankExchange, World
from paragan.core.layout import Layout, TensorLayout
from paragan.core.phases import Phase, phase
from paragan.parallel import ddp
from paragan.parallel.base.fully_shard import check_steps_shards, mesh_of, shard
from paragan.parallel.base.placement import placement_of

_AT_ONCE = 1 << 25  # elements per exchange, to bound its buffer


class Strategy(ddp.Strategy):
    """ZeRO stage 1: DistributedDataParallel with sharded optimiser state."""

    sharded_copies = 3  # two moments of Adam, and the average

    def exchanges(self, weight_bytes: int, is_opponent: bool = False) -> tuple[RankExchange, ...]:
        if is_opponent:
            return ()
        return (*super().exchanges(weight_bytes), RankExchange(kind=Collective.ALL_GATHER, num_bytes=weight_bytes))

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        return shard(make(), mesh_of(world), shards_constants=False)

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        check_steps_shards(policy, "zero1")
        boxes = self.optimizer_layout(net)
        pieces = {k: boxes[k].cut(p.detach()).requires_grad_() for k, p in net.named_parameters()}
        placement_of(net).shards = list(zip(net.parameters(), pieces.values(), strict=True))
        return self.optimizer_of(policy, pieces)

    def finished_gradients(self, net: nn.Module, scale: Tensor | None = None) -> dict[str, Tensor]:
        grads = super().finished_gradients(net, scale)
        boxes = self.optimizer_layout(net)
        for box, (weight, piece) in zip(boxes.values(), placement_of(net).shards, strict=True):
            # A view: what is clipped is the whole gradient.
            piece.grad = None if weight.grad is None else box.cut(weight.grad)
        return grads

    @torch.no_grad()
    def after_step(self, net: nn.Module) -> None:
        world = placement_of(net).world
        if world.size == 1:
            return
        for bucket in _buckets([weight for weight in net.parameters() if weight.requires_grad]):
            pieces = [
                [TensorLayout.rows(weight.shape, rank, world.size).cut(weight.detach()) for weight in bucket]
                for rank in range(world.size)
            ]
            # All ranks send equally much: rank 0 has the largest shares, and others pad theirs.
            local = _flatten(pieces[world.rank], sum(piece.numel() for piece in pieces[0]))
            gathered = local.new_empty(world.size * len(local))
            world.count("parameters", local, collective=Collective.ALL_GATHER)
            with phase(Phase.COMMUNICATION):
                dist.all_gather_into_tensor(gathered, local, group=world.group)
            for of_rank, flat in zip(pieces, gathered.split(len(local)), strict=True):
                sizes = [piece.numel() for piece in of_rank]
                cuts = zip(flat[: sum(sizes)].split(sizes), of_rank, strict=True)
                torch._foreach_copy_(of_rank, [cut.view(piece.shape) for cut, piece in cuts])

    def optimizer_layout(self, net: nn.Module) -> Layout:
        world = placement_of(net).world
        named = net.named_parameters()
        return {name: TensorLayout.rows(weight.shape, world.rank, world.size) for name, weight in named}


def _buckets(weights: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield weights in order, in groups of one dtype and a bounded number of elements."""
    bucket: list[Tensor] = []
    for weight in weights:
        is_full = sum(w.numel() for w in bucket) + weight.numel() > _AT_ONCE
        if bucket and (is_full or weight.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(weight)
    if bucket:
        yield bucket


def _flatten(pieces: Sequence[Tensor], length: int) -> Tensor:
    flat = torch.cat([piece.reshape(-1) for piece in pieces])
    return F.pad(flat, (0, length - len(flat)))  # `all_gather_into_tensor` takes equal lengths alone
