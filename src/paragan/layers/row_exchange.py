"""Differentiable exchanges of rows between ranks that share a split layer.

Every exchange is one all-to-all, whose adjoint is an all-to-all back, so that derivatives of any
order exist. Collectives match by order alone: every rank must call them equally often, in the
forward and the backward, also with an empty shard of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.collective import rank_error_from
from paragan.core.dist import Collective, World
from paragan.core.phases import Phase, phase
from paragan.layers.all_reduce import EQUAL_CALLS, ReduceGroup


@dataclass(frozen=True)
class SplitRanks:
    """The ranks of `world` that share split layers; all of them, each with rows of its batch."""

    world: World

    @property
    def reduce_group(self) -> ReduceGroup:
        """Group that sums statistics of a split weight."""
        return ReduceGroup(self.world.group, "split layer", self.world.count)

    def rows(self, count: int) -> GroupRows:
        """Return the rows of all ranks, of which `count` are here. Collective, on the host."""
        return GroupRows(self.world, tuple(self.world.gather(count)))  # a rank cannot tell whether others have fewer

    def __deepcopy__(self, memo: dict[int, Any]) -> SplitRanks:
        """Return itself: process groups cannot be copied, and copied networks use the same one."""
        return self


@dataclass(frozen=True)
class GroupRows:
    """Rows of a batch by rank; rows of all ranks are in rank order. Methods are collective."""

    world: World
    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of rows of this rank."""
        return self.counts[self.world.rank]

    @property
    def total(self) -> int:
        """Number of rows of all ranks."""
        return sum(self.counts)

    def gather(self, x_B: Tensor) -> Tensor:
        """Return the rows of all ranks from the rows of each: (total, ...)."""
        sent = x_B.expand(len(self.counts), *x_B.shape)
        inner = prod(x_B.shape[1:])
        received = [count * inner for count in self.counts]
        rows = self._exchange(sent, [x_B.numel()] * len(self.counts), received)
        return rows.view(self.total, *x_B.shape[1:])

    def scatter_sum(self, x: Tensor) -> Tensor:
        """Return the rows of this rank, summed over ranks, from (total, ...) on each of them."""
        inner = prod(x.shape[1:])
        received = [self.count * inner] * len(self.counts)
        parts = self._exchange(x, [count * inner for count in self.counts], received)
        return parts.view(len(self.counts), self.count, *x.shape[1:]).sum(0)  # in rank order: the same bits every time

    def scatter_columns(self, x: Tensor, widths: Sequence[int]) -> Tensor:
        """Return this rank's rows with all columns (axis 1), from all rows with `widths[rank]`."""
        inner = prod(x.shape[2:])
        sent = [count * x.shape[1] * inner for count in self.counts]
        received = [self.count * width * inner for width in widths]
        parts = zip(widths, self._exchange(x, sent, received).split(received), strict=True)
        return torch.cat([part.view(self.count, width, *x.shape[2:]) for width, part in parts], 1)

    def _exchange(self, x: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        pieces: Tensor = AllToAll.apply(x.flatten(), sent, received, self.world)
        return pieces


class AllToAll(torch.autograd.Function):
    """Send consecutive pieces of a flat tensor, one to each rank; return those received, by rank.

    sent, received: elements to and from each rank. Its backward is itself with these exchanged, so
    it can be differentiated any number of times.
    """

    @staticmethod
    def forward(ctx: Any, flat: Tensor, sent: Sequence[int], received: Sequence[int], world: World) -> Tensor:
        ctx.exchange = received, sent, world
        num_bytes = (flat.numel() - sent[world.rank]) * flat.element_size()  # what stays here is not sent
        world.count_bytes("activations", num_bytes, Collective.LINK)
        result = flat.new_empty(sum(received))
        problem = "not every rank joined in a split layer"
        with phase(Phase.COMMUNICATION), rank_error_from(problem, EQUAL_CALLS):
            dist.all_to_all_single(result, flat.contiguous(), list(received), list(sent), world.group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        return AllToAll.apply(grad, *ctx.exchange), None, None, None
