"""What people write when they meet these problems for the first time: plain torch, each piece right on one process.

Kept apart from the library on purpose: the regression tests of the pain points show that this code fails.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Both(nn.Module):
    """Two networks behind one wrapper; each turn uses what it needs of them."""

    def __init__(self, g: nn.Module, d: nn.Module) -> None:
        super().__init__()
        self.g, self.d = g, d

    def forward(self, z, turn):
        fake = self.g(z)
        return self.d(fake if turn == "g" else fake.detach())


class SyncNormOfNumbers(nn.Module):
    """Batch norm that adds up its statistics over ranks; the sum is no operation that autograd knows."""

    def __init__(self, channels: int, group=None) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.group = group

    def forward(self, x):
        sums = torch.stack([x.sum(0), x.square().sum(0), torch.full_like(x[0], len(x))])
        summed = sums.detach().clone()
        dist.all_reduce(summed, group=self.group)
        first, second, count = summed
        mean = first / count
        return (x - mean) * (second / count - mean.square() + 1e-5).rsqrt() * self.gain + self.bias


class _Normalise(torch.autograd.Function):
    """With the first derivative of the text books, summed over ranks where it says so."""

    @staticmethod
    def forward(ctx, x):
        sums = torch.stack([x.sum(0), x.square().sum(0), torch.full_like(x[0], len(x))])
        dist.all_reduce(sums)
        first, second, count = sums
        mean = first / count
        inverse = (second / count - mean.square() + 1e-5).rsqrt()
        normal = (x - mean) * inverse
        ctx.save_for_backward(normal, inverse, count)
        return normal

    @staticmethod
    def backward(ctx, grad):
        normal, inverse, count = ctx.saved_tensors
        sums = torch.stack([grad.sum(0), (grad * normal).sum(0)])
        dist.all_reduce(sums)
        return inverse * (grad - sums[0] / count - normal * sums[1] / count)


class SyncNormOnce(nn.Module):
    """Batch norm over ranks, differentiable once."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return _Normalise.apply(x) * self.gain + self.bias


class InPlaceSpectralNorm(nn.Module):
    """A linear layer over its largest singular value: one power iteration per forward, written into u and v."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns, dtype=torch.float64))
        self.u = F.normalize(torch.randn(rows, dtype=torch.float64), dim=0)  # attributes: no state dict has them
        self.v = F.normalize(torch.randn(columns, dtype=torch.float64), dim=0)

    def forward(self, x):
        with torch.no_grad():
            self.v.copy_(F.normalize(self.weight.T @ self.u, dim=0))
            self.u.copy_(F.normalize(self.weight @ self.v, dim=0))
        return F.linear(x, self.weight / torch.dot(self.u, self.weight @ self.v))


def r1_alone(d: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A loss of the input's gradient and nothing else."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(d(x).sum(), x, create_graph=True)
    return slope.flatten(1).square().sum(1).mean()


def counted(wrapped: nn.Module) -> list[int]:
    """Bytes that a `DistributedDataParallel` exchanges from now on, one entry per exchange."""
    sent: list[int] = []

    def hook(state, bucket):
        whole = bucket.buffer()
        sent.append(whole.numel() * whole.element_size())
        done = dist.all_reduce(whole, async_op=True).get_future()
        return done.then(lambda _: whole.div_(dist.get_world_size()))

    wrapped.register_comm_hook(None, hook)
    return sent
