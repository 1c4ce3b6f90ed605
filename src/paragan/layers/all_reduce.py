"""Sums over ranks that autograd follows, and the normalisation of batch norm built on them.

A collective meets its fellows by order alone: every rank must come equally often, also with an uneven or empty shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from paragan.core.dist import World
from paragan.core.errors import RankError
from paragan.core.types import Rows
from paragan.layers.precision import widened


@dataclass(frozen=True)
class RankGather:
    """Ranks that add up tensors: their group, who asks (for messages), and who counts the bytes (`World.count`)."""

    group: dist.ProcessGroup | None
    name: str = "all-reduce"
    count: Callable[[str, Tensor], None] | None = None

    def sum_(self, values: Tensor) -> Tensor:
        """Over these ranks, in place, without a gradient. RankError: some rank did not come."""
        if self.count is not None:
            self.count("norm", values)
        try:
            dist.all_reduce(values, group=self.group)
        except RuntimeError as error:
            first = str(error).partition("\n")[0][:200]
            raise RankError(
                f"{self.name}: not every rank joined in its statistics ({first}); every rank must call the same layers "
                "equally often: see the message of the rank that failed first, then try again"
            ) from error
        return values

    def __deepcopy__(self, memo: dict[int, Any]) -> RankGather:
        """Itself: the copy of a network talks to the same ranks, and a process group cannot be copied."""
        return self


@dataclass(frozen=True)
class RankGroup:
    """Consecutive ranks of `world`, `num` of them, that share a batch."""

    across: RankGather
    world: World
    num: int

    def rows(self, count: int) -> Rows:
        """Where so many rows of this rank are among those of all. The hosts ask each other, not the devices."""
        first = self.world.rank // self.num * self.num
        before, beside = self.world.rank - first, self.world.gather(count)[first : first + self.num]
        return Rows(0, sum(beside[:before]), count, sum(beside))

    def __deepcopy__(self, memo: dict[int, Any]) -> RankGroup:
        """Itself, as `Across`."""
        return self


class AllReduceSum(torch.autograd.Function):
    """`AllReduceSum.apply(x, across)`: the sum of x over ranks, on each of them, of the gradient of all ranks' losses.

    Differentiable any number of times, for its backward is itself; every rank has to run that backward, too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, across: RankGather) -> Tensor:
        ctx.across = across
        return across.sum_(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return AllReduceSum.apply(grad, ctx.across), None


def whole(x_B: Tensor, rows: Rows, across: RankGather) -> Tensor:
    """The rows of all ranks, (rows.total, …), in the order of the global batch. rows: those that are here."""
    at, empty = rows.window, x_B.new_zeros((rows.total, *x_B.shape[1:]))
    mine: Tensor = empty.slice_scatter(x_B, 0, at.start, min(at.stop, rows.total), at.step)
    found: Tensor = AllReduceSum.apply(mine, across)
    return found


class _Moments(torch.autograd.Function):
    """(2, C): sums over all ranks of x - centre and its square, given as known; communicates in backward alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, centre_C: Tensor, known_2C: Tensor, across: RankGather) -> Tensor:
        ctx.save_for_backward(x, centre_C)
        ctx.across = across
        return known_2C.clone()

    @staticmethod
    def backward(ctx: Any, grad_2C: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        x, centre_C = ctx.saved_tensors
        first, second = (_along(x, t) for t in AllReduceSum.apply(grad_2C, ctx.across))
        return (first + 2 * second * (x - _along(x, centre_C))).to(x.dtype), None, None, None


class Normalise(torch.autograd.Function):
    """(y, mean, biased variance, count over the ranks). Backward: fused by hand, or of plain parts if differentiated.

    With w = gain / deviation, h = (x - mean) / deviation and N samples on all ranks together:
    dx = w (dy - sum(dy) / N - h sum(dy h) / N), where the sums span the ranks (Ioffe & Szegedy 2015, section 3).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gain_C: Tensor | None, bias_C: Tensor | None, eps: float, across: RankGather
    ) -> Any:
        mean, var, count = _statistics(x, across)
        gain, bias = (None if t is None else t.to(mean.dtype) for t in (gain_C, bias_C))
        y = F.batch_norm(x, mean, var, gain, bias, False, 0.0, eps)
        ctx.save_for_backward(x, gain_C, mean, var, count)
        ctx.eps, ctx.across = eps, across
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


def _statistics(x: Tensor, across: RankGather) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, biased variance and count over the ranks; centred on each rank, joined in float64: no cancellation."""
    dims, count = _dims(x), x.numel() // x.shape[1]
    mean = x.sum(dims, dtype=torch.promote_types(x.dtype, torch.float32)) / max(count, 1)
    squares = (x - _along(x, mean)).square_().sum(dims)
    wide = mean.double()
    packed = torch.cat([wide * count, squares.double() + wide.square() * count, wide.new_full((1,), count)])
    first, second, total = across.sum_(packed).split([len(mean), len(mean), 1])
    wide = first / total
    var = (second / total - wide.square()).clamp_min_(0)
    return wide.to(mean.dtype), var.to(mean.dtype), total[0]


def _fused(
    ctx: Any, grad: Tensor, x: Tensor, gain: Tensor | None, mean: Tensor, var: Tensor, count: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """First derivatives, in three passes over x and one temporary of its size."""
    dgain, dbias = _sums(grad, x, mean, var, ctx.eps)
    if not ctx.needs_input_grad[0]:
        return None, dgain, dbias
    first, second = ctx.across.sum_(torch.stack([dbias, dgain])) / count
    inverse = (var + ctx.eps).rsqrt()
    weight = inverse if gain is None else inverse * gain
    slope = -weight * inverse * second
    dx = torch.addcmul(_along(x, -weight * first - slope * mean), x, _along(x, slope))
    return dx.addcmul_(grad, _along(x, weight)).to(x.dtype), dgain, dbias


def _sums(grad: Tensor, x: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Per channel, over this rank: gradient times normalised x, gradient. By the kernel of evaluation, in one pass."""
    if not x.numel():  # on which the kernel ends the process
        return torch.zeros_like(mean), torch.zeros_like(mean)
    kernel, wanted = torch.ops.aten.native_batch_norm_backward, [False, True, True]
    _, dgain, dbias = kernel(grad, x, torch.ones_like(mean), mean, var, None, None, False, eps, wanted)
    return dgain, dbias


def _differentiable(
    ctx: Any, grad: Tensor, x: Tensor, gain: Tensor | None, mean: Tensor, var: Tensor, count: Tensor
) -> tuple[Tensor | None, Tensor, Tensor]:
    """The same in operations that autograd follows; the statistics are known, their gradients are summed over ranks."""
    wide, grad = widened(x), widened(grad)
    known = torch.stack([torch.zeros_like(var), var * count])
    first, second = _Moments.apply(wide, mean, known, ctx.across) / count
    inverse = (second - first.square() + ctx.eps).rsqrt()
    normal = (wide - _along(x, mean + first)) * _along(x, inverse)
    sums = torch.stack([grad.sum(_dims(x)), (grad * normal).sum(_dims(x))])
    dbias, dgain = sums.unbind()
    if not ctx.needs_input_grad[0]:
        return None, dgain, dbias
    first, second = AllReduceSum.apply(sums, ctx.across) / count
    weight = inverse if gain is None else inverse * gain
    dx = (grad - _along(x, first) - normal * _along(x, second)) * _along(x, weight)
    return dx.to(x.dtype), dgain, dbias


def _dims(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def _along(x: Tensor, values_C: Tensor) -> Tensor:
    """One value per channel, in the shape that meets x."""
    return values_C.reshape(-1, *(1,) * (x.dim() - 2))
