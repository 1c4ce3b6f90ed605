"""Batch norm whose statistics span ranks (Peng et al. 2018, "MegDet"), with second derivatives.

Each layer gives one small tensor to one all-reduce per forward, and one per backward. CPU and GPU.
"""

from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.layers.all_reduce import Normalise, ReduceGroup, SharedBatchRanks
from paragan.layers.batch_norm import BatchNorm
from paragan.layers.minibatch_std import MinibatchStd
from paragan.layers.modes import frozen_modules

_TORCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class CrossRankBatchNorm(BatchNorm):
    """`BatchNorm` over the samples of all ranks in `reduce_group` (None: one rank), by `convert`.

    average_group: ranks over which running statistics are averaged, so that they stay equal. A
    training forward is collective; evaluation needs no communication.
    """

    reduce_group: ReduceGroup | None
    average_group: ReduceGroup | None

    def forward(self, x: Tensor, gain_C: Tensor | None = None, bias_C: Tensor | None = None) -> Tensor:
        if not self.training or self.reduce_group is None:
            return super().forward(x, gain_C, bias_C)
        y, mean, var, count = Normalise.apply(x, gain_C, bias_C, self.eps, self.reduce_group)
        if self.take_update():
            var = _unbiased(var, count)
            self._update_running(_lerp(self.mean, mean, self.momentum), _lerp(self.var, var, self.momentum))
        return y

    def _update_running(self, mean: Tensor, var: Tensor) -> None:
        super()._update_running(*_average(mean, var, self.average_group))


class _TorchNorm(nn.modules.batchnorm._BatchNorm):
    """torch's batch norm, whose running statistics follow every training forward, over ranks.

    Without running statistics, evaluation normalises by the batch of this rank, without communication.
    """

    reduce_group: ReduceGroup | None
    average_group: ReduceGroup | None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        group = self.reduce_group
        if group is not None:
            y, mean, var, count = Normalise.apply(x, self.weight, self.bias, self.eps, group)
            var = _unbiased(var, count)
        else:
            like = self.running_mean if self.track_running_stats else None
            mean = None if like is None else torch.zeros_like(like)
            var = None if like is None else torch.zeros_like(like)
            # momentum 1: writes the statistics of the batch, since torch's own update would not be averaged
            y = F.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0, self.eps)
        if self.track_running_stats:
            self._follow_batch(*_average(mean, var, self.average_group))
        return y

    @torch.no_grad()
    def _follow_batch(self, mean: Tensor, var: Tensor) -> None:
        names = ("running_mean", "running_var", "num_batches_tracked")
        running_mean, running_var, tracked = (self.get_buffer(name) for name in names)
        tracked.add_(1)
        weight = 1 / tracked.to(mean.dtype) if self.momentum is None else self.momentum
        running_mean.copy_(_lerp(running_mean, mean, weight))
        running_var.copy_(_lerp(running_var, var, weight))


# of two bases: `super()` in `_TorchNorm` is then torch's class of this kind
_CROSS_RANK: dict[type[nn.Module], type[nn.Module]] = {
    BatchNorm: CrossRankBatchNorm,
    **{kind: type(f"CrossRank{kind.__name__}", (_TorchNorm, kind), {}) for kind in _TORCH_NORMS},
}


def convert(net: nn.Module, world: World, ranks: int | None) -> None:
    """Let the batch statistics of `net` span `ranks` consecutive ranks (None: all; 1: each alone).

    Concerns batch norms, local and torch's, and minibatch standard deviation; frozen parts are
    unchanged. In place: modules, names, buffers, dtype, device and hooks stay. A world of one
    changes nothing. Collective: every rank must call this, in the same order.

    If statistics span only some of the ranks, or one, they differ between these groups: running ones are averaged over
    the world, or samples would depend on the rank.
    """
    if world.size == 1:
        return
    norms = _norms(net)
    minibatch_stds = {name: m for name, m in net.named_modules() if isinstance(m, MinibatchStd)}
    num_ranks = world.size if ranks is None else ranks
    group = _norm_group(world, num_ranks) if norms or minibatch_stds else None
    averaging_group = None if group is world.group else world.group
    count = partial(world.count, num_ranks=num_ranks)
    for name, norm in norms.items():
        norm.__class__ = _CROSS_RANK.get(type(norm), type(norm))  # a converted one stays
        norm.reduce_group = None if group is None else ReduceGroup(group, name, count)
        norm.average_group = None if averaging_group is None else ReduceGroup(averaging_group, name, world.count)
    for name, layer in minibatch_stds.items():
        if group is not None:
            layer.shared_ranks = SharedBatchRanks(ReduceGroup(group, name, count), world, num_ranks)


def _norms(net: nn.Module) -> dict[str, Any]:
    """Return batch norms by name; raise `ConfigError` for one that cannot be converted."""
    norms = {}
    frozen = frozen_modules(net)
    for name, module in net.named_modules():
        if module in frozen:
            continue
        name = name or type(module).__name__
        check_synchronised_norm(module, name)
        if isinstance(module, BatchNorm | nn.modules.batchnorm._BatchNorm):
            if type(module) not in (*_CROSS_RANK, *_CROSS_RANK.values()):
                raise ConfigError(
                    f"{name}: the statistics of the custom batch norm {type(module).__name__} cannot span ranks; use "
                    "nn.BatchNorm1d, 2d, 3d or paragan.BatchNorm, or devices=1"
                )
            norms[name] = module
    return norms


def check_synchronised_norm(module: nn.Module, name: str) -> None:
    """Raise `ConfigError` for torch's SyncBatchNorm."""
    if isinstance(module, nn.SyncBatchNorm):
        raise ConfigError(
            f"{name}: nn.SyncBatchNorm has no second derivative and no CPU kernel; use "
            "nn.BatchNorm1d, 2d or 3d, whose statistics will span the ranks (see norm_ranks)"
        )


def _norm_group(world: World, ranks: int) -> dist.ProcessGroup | None:
    """Return the group of this rank, of so many ranks, or None if every rank is separate."""
    if ranks < 1 or world.size % ranks:
        raise ConfigError(f"norm_ranks={ranks} does not divide {world.size} ranks; pass a divisor of {world.size}")
    if ranks == 1:
        return None
    if ranks == world.size:
        return world.group
    return _consecutive_ranks_group(world.group, ranks, world.device)


@cache
def _consecutive_ranks_group(group: dist.ProcessGroup, size: int, device: torch.device) -> dist.ProcessGroup:
    """Return this rank's group of `size`, created once: all networks of a run share it."""
    ranks = dist.get_process_group_ranks(group)
    timeout = group._get_backend(device).options._timeout  # else torch waits for half an hour
    backend = dist.get_backend(group)
    first = dist.get_rank(group) // size * size
    # local: only the ranks of the new group call this
    return dist.new_group(ranks[first : first + size], timeout, backend, use_local_synchronization=True)


def _unbiased(var: Tensor, count: Tensor) -> Tensor:
    return var * (count / (count - 1)).to(var.dtype)  # a tensor: to read the count would wait for the device


def _lerp(running: Tensor, new: Tensor, weight: float | Tensor) -> Tensor:
    return torch.lerp(running.to(new.dtype), new, weight)


@torch.no_grad()
def _average(mean: Tensor, var: Tensor, ranks: ReduceGroup | None) -> tuple[Tensor, Tensor]:
    """Average statistics over ranks where they differ."""
    if ranks is None:
        return mean, var
    mean, var = ranks.all_reduce_(torch.stack([mean, var])) / dist.get_world_size(ranks.group)
    return mean, var
