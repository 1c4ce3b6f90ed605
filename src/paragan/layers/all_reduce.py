"""Differentiable sums over ranks, and the normalisation of batch norm built on them.

Collectives match by order alone: every rank must call them equally often, also with an uneven or empty shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from paragan.core.collective import rank_error_from
from paragan.core.dist import World
from paragan.core.phases import Phase, phase
from paragan.core.types import Rows
from paragan.layers.precision import at_least_float32

EQUAL_CALLS = (
    "every rank must call the same layers equally often: see the message of the rank that failed first, then try again"
)


@dataclass(frozen=True)
class ReduceGroup:
    """Ranks that all-reduce tensors, a name for messages, and a byte counter (`World.count`)."""

    group: dist.ProcessGroup | None
    name: str = "all-reduce"
    count_bytes: Callable[[str, Tensor], None] | None = None

    @phase(Phase.COMMUNICATION)
    def all_reduce_(self, values: Tensor) -> Tensor:
        """Sum over these ranks in place, without a gradient.

        Collective: every rank must call this. Raises `RankError` if a rank does not take part.
        """
        if self.count_bytes is not None:
            self.count_bytes("norm", values)
        with rank_error_from(f"{self.name}: not every rank joined in its statistics", EQUAL_CALLS):
            dist.all_reduce(values, group=self.group)
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> ReduceGroup:
        """Return itself: process groups cannot be copied, and copied networks use the same one."""
        return self


@dataclass(frozen=True)
class SharedBatchRanks:
    """Group of `num_ranks` consecutive ranks of `world` that share a batch."""

    reduce_group: ReduceGroup
    world: World
    num_ranks: int

    def rows(self, count: int) -> Rows:
        """Return the rows of this rank, `count` of them, within the batch of the group.

        Collective: every rank must call this. Communicates on the host, not on the device.
        """
        first = self.world.rank // self.num_ranks * self.num_ranks
        before = self.world.rank - first
        counts = self.world.gather(count)[first : first + self.num_ranks]
        return Rows(step=0, first=sum(counts[:before]), count=count, total=sum(counts))

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedBatchRanks:
        """Return itself, as `ReduceGroup` does."""
        return self


class AllReduceSum(torch.autograd.Function):
    """Sum over ranks, `AllReduceSum.apply(x, across)`, whose gradient is that of all ranks' losses.

    Its backward is itself, so it can be differentiated any number of times. Collective: every rank
    must run the forward and the backward.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, across: ReduceGroup) -> Tensor:
        ctx.reduce_group = across
        return across.all_reduce_(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return AllReduceSum.apply(grad, ctx.reduce_group), None


def gather_batch(x_B: Tensor, rows: Rows, across: ReduceGroup) -> Tensor:
    """Return the rows of all ranks, (rows.total, ...), in the order of the global batch.

    rows: the rows of this rank. Collective: every rank must call this.
    """
    window = rows.window
    empty = x_B.new_zeros((rows.total, *x_B.shape[1:]))
    # a sum of zeros and rows: ranks need not know the others' counts, and its adjoint is one sum, too
    local = empty.slice_scatter(x_B, 0, window.start, min(window.stop, rows.total), window.step)
    batch: Tensor = AllReduceSum.apply(local, across)
    return batch


class _Moments(torch.autograd.Function):
    """Sums over all ranks of x - centre and its square, (2, C); only backward communicates."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, centre_C: Tensor, known_2C: Tensor, across: ReduceGroup) -> Tensor:
        ctx.save_for_backward(x, centre_C)
        ctx.reduce_group = across
        return known_2C.clone()

    @staticmethod
    def backward(ctx: Any, grad_2C: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        x, centre_C = ctx.saved_tensors
        first, second = (_per_channel(x, t) for t in AllReduceSum.apply(grad_2C, ctx.reduce_group))
        return (first + 2 * second * (x - _per_channel(x, centre_C))).to(x.dtype), None, None, None


class Normalise(torch.autograd.Function):
    """Batch norm over ranks: returns y, mean, biased variance, and the sample count of all ranks.

    With w = gain / deviation, h = (x - mean) / deviation and N samples on all ranks together: dx =
    w (dy - sum(dy) / N - h sum(dy h) / N), where the sums span the ranks (Ioffe & Szegedy 2015,
    section 3). Backward is a fused kernel, or differentiable operations if it is differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gain_C: Tensor | None, bias_C: Tensor | None, eps: float, across: ReduceGroup
    ) -> Any:
        mean, var, count = _statistics(x, across)
        gain, bias = (None if t is None else t.to(mean.dtype) for t in (gain_C, bias_C))
        y = F.batch_norm(x, mean, var, gain, bias, False, 0.0, eps)
        ctx.save_for_backward(x, gain_C, mean, var, count)
        ctx.eps = eps
        ctx.reduce_group = across
        ctx.mark_non_differentiable(mean, var, count)
        ctx.set_materialize_grads(False)
        return y, mean, var, count

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> Any:  # type: ignore[override]
        if grad is None:
            return None, None, None, None, None
        rule = _differentiable if torch.is_grad_enabled() else _fused
        dx, dgain, dbias = rule(ctx, grad, *ctx.saved_tensors)
        _, has_gain, has_bias, *_ = ctx.needs_input_grad
        return dx, dgain if has_gain else None, dbias if has_bias else None, None, None


def _statistics(x: Tensor, across: ReduceGroup) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, biased variance and count over ranks; centred, then joined in float64."""
    # Centred here: the difference of a sum of squares and a squared mean has few digits left in float32.
    dims = _dims(x)
    count = x.numel() // x.shape[1]
    mean = x.sum(dims, dtype=torch.promote_types(x.dtype, torch.float32)) / max(count, 1)
    squares = (x - _per_channel(x, mean)).square_().sum(dims)
    local_mean = mean.double()
    sums = [local_mean * count, squares.double() + local_mean.square() * count, local_mean.new_full((1,), count)]
    sum_x, sum_xx, total = across.all_reduce_(torch.cat(sums)).split([len(mean), len(mean), 1])
    global_mean = sum_x / total
    var = (sum_xx / total - global_mean.square()).clamp_min_(0)
    return global_mean.to(mean.dtype), var.to(mean.dtype), total[0]


def _fused(
    ctx: Any, grad: Tensor, x: Tensor, gain: Tensor | None, mean: Tensor, var: Tensor, count: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return first derivatives, in three passes over x with one temporary of its size."""
    dgain, dbias = _sums(grad, x, mean, var, ctx.eps)
    if not ctx.needs_input_grad[0]:
        return None, dgain, dbias
    mean_dy, mean_dyh = ctx.reduce_group.all_reduce_(torch.stack([dbias, dgain])) / count  # h: normalised x
    inverse = (var + ctx.eps).rsqrt()
    weight = inverse if gain is None else inverse * gain
    slope = -weight * inverse * mean_dyh
    dx = torch.addcmul(_per_channel(x, -weight * mean_dy - slope * mean), x, _per_channel(x, slope))
    return dx.addcmul_(grad, _per_channel(x, weight)).to(x.dtype), dgain, dbias


def _sums(grad: Tensor, x: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return sums per channel over this rank: gradient times normalised x, and gradient."""
    if not x.numel():  # the kernel would crash the process
        return torch.zeros_like(mean), torch.zeros_like(mean)
    kernel = torch.ops.aten.native_batch_norm_backward
    output_mask = [False, True, True]  # no gradient of x, those of gain and bias
    ones = torch.ones_like(mean)
    inverse = (var + eps).rsqrt()  # CUDA wants it, although it computes it from the variance
    _, dgain, dbias = kernel(grad, x, ones, mean, var, mean, inverse, False, eps, output_mask)
    return dgain, dbias


def _differentiable(
    ctx: Any, grad: Tensor, x: Tensor, gain: Tensor | None, mean: Tensor, var: Tensor, count: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return what `_fused` does, by differentiable operations; statistics get gradients, too."""
    wide = at_least_float32(x)
    grad = at_least_float32(grad)
    # centred at the mean: the sums are known from the forward, so that only their gradient needs a message
    known = torch.stack([torch.zeros_like(var), var * count])
    offset, square = _Moments.apply(wide, mean, known, ctx.reduce_group) / count
    inverse = (square - offset.square() + ctx.eps).rsqrt()
    normal = (wide - _per_channel(x, mean + offset)) * _per_channel(x, inverse)
    sums = torch.stack([grad.sum(_dims(x)), (grad * normal).sum(_dims(x))])
    dbias, dgain = sums.unbind()
    if not ctx.needs_input_grad[0]:
        return None, dgain, dbias
    mean_dy, mean_dyh = AllReduceSum.apply(sums, ctx.reduce_group) / count  # h: normalised x
    weight = inverse if gain is None else inverse * gain
    centred = grad - _per_channel(x, mean_dy) - normal * _per_channel(x, mean_dyh)
    return (centred * _per_channel(x, weight)).to(x.dtype), dgain, dbias


def _dims(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _per_channel(x: Tensor, values_C: Tensor) -> Tensor:
    """Reshape one value per channel to broadcast with x."""
    return values_C.reshape(-1, *(1,) * (x.dim() - 2))
