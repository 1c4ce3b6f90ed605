"""Moves of rows between ranks as autograd functions: the communication of a pipeline.

A move is described by the rows that each rank has before it and after it, consecutive in the order
of ranks. Its adjoint is the move back, another such move, so it can be differentiated any number of
times. Ranks that hold no rows have tensors of no rows, which carry the graph: every rank must reach
the same moves in the forward and in every backward.

Sends do not block and receives do. Each rank reaches its moves in its own order, but messages from
one rank to another are sent and received in one order, that of the rank's forward, or of its
reverse in a backward: torch's engine runs the nodes of one device by descending creation number.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paragan.core.collective import rank_error_from
from paragan.core.dist import Collective, World
from paragan.core.phases import Phase, phase

Spec = tuple[tuple[int, ...], torch.dtype]
"""Shape of one row, and dtype, of a tensor."""


@dataclass
class Messages:
    """Messages of the ranks of one pipeline.

    tokens: empty tensors whose graphs reach all moves since the list was set; None: not recorded.
    """

    ranks: World
    tokens: list[Tensor] | None = None
    _sent: list[tuple[Any, Tensor]] = field(default_factory=list)

    def __deepcopy__(self, memo: dict[int, Any]) -> Messages:
        """Return itself: process groups cannot be copied, and copied networks use the same one."""
        return self

    def send(self, rows: Tensor, to: int) -> None:
        """Send without waiting; the tensor is held until `flush`, since gloo completes a send in a wait only."""
        rows = rows.contiguous()
        self.ranks.count("activations", rows, collective=Collective.LINK)
        with _missing_rank():
            work = dist.isend(rows, group=self.ranks.group, group_dst=to)
        self._sent.append((work, rows))

    def receive(self, rows: Tensor, source: int) -> Any:
        """Begin to receive into contiguous rows; return what `wait` takes."""
        with _missing_rank():
            return dist.irecv(rows, group=self.ranks.group, group_src=source)

    @phase(Phase.COMMUNICATION)
    def wait(self, received: Any) -> None:
        """Wait for rows."""
        with _missing_rank():
            received.wait()

    @phase(Phase.COMMUNICATION)
    def flush(self) -> None:
        """Wait until all messages have arrived."""
        sent = self._sent
        self._sent = []
        with _missing_rank():
            for work, _ in sent:
                work.wait()


def _missing_rank() -> AbstractContextManager[None]:
    advice = "see the message of the rank that failed first, then run the same command again"
    return rank_error_from("pipeline: a rank did not send or receive its rows", advice)


@dataclass(frozen=True)
class RowMove:
    """Rows of each rank before and after a move.

    is_recorded_always: whether its result requires a gradient wherever gradients are recorded,
    because some rank's does.
    """

    messages: Messages
    before: tuple[int, ...]
    after: tuple[int, ...]
    is_recorded_always: bool = True

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Move the rows of all tensors, with their graph, in one node of it."""
        needs = torch.is_grad_enabled() and (self.is_recorded_always or any(t.requires_grad for t in tensors))
        *moved, token = _MoveRows.apply(self, _leaf(needs, tensors[0]), *tensors)
        if needs and self.messages.tokens is not None:
            self.messages.tokens.append(token)
        return moved

    def back(self) -> RowMove:
        """Return the adjoint, which is recorded on every rank: second derivatives may need it on any."""
        return replace(self, before=self.after, after=self.before, is_recorded_always=True)

    def transfer(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Move the rows without their graph."""
        local = self.messages.ranks.rank
        before = _spans(self.before)
        after = _spans(self.after)
        moved = [tensor.new_empty((self.after[local], *tensor.shape[1:])) for tensor in tensors]
        # All sends begin before any wait, or two ranks that exchange rows would wait for each other.
        for rank, span in enumerate(after):
            common = _overlap(before[local], span)
            if not common:
                continue
            for tensor, out in zip(tensors, moved, strict=True):
                rows = tensor[_within(common, before[local])]
                if rank == local:
                    out[_within(common, span)] = rows
                else:
                    self.messages.send(rows, rank)
        requests = []
        for rank, span in enumerate(before):
            common = _overlap(span, after[local])
            if not common or rank == local:
                continue
            # Tensors in one order at both ends: messages between two ranks have no numbers.
            for out in moved:
                requests.append(self.messages.receive(out[_within(common, after[local])], rank))
        for request in requests:
            self.messages.wait(request)
        return moved


class _MoveRows(torch.autograd.Function):
    """One move of the rows of several tensors; returns them, and an empty tensor that reaches it."""

    @staticmethod
    def forward(ctx: Any, move: RowMove, leaf: Tensor | None, *tensors: Tensor) -> Any:
        ctx.move = move
        moved = move.transfer([tensor.detach() for tensor in tensors])
        # The token costs nothing. The pipeline adds it to the input gradient of a penalty, whose backward then reaches
        # this move on every rank, also where no row of the gradient came through it.
        return (*moved, moved[0].new_empty(0, dtype=torch.float32))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        return None, None, *ctx.move.back()(grads[:-1])  # a move again, not `transfer`: recorded for R1


class _Absent(torch.autograd.Function):
    """Tensors of no rows, in place of what another rank computes from the inputs."""

    @staticmethod
    def forward(ctx: Any, specs: Sequence[Spec], leaf: Tensor | None, *inputs: Tensor) -> Any:
        ctx.specs = [(tuple(tensor.shape[1:]), tensor.dtype) for tensor in inputs]
        return tuple(inputs[0].new_empty((0, *shape), dtype=dtype) for shape, dtype in specs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        return None, None, *absent(ctx.specs, grads)


def absent(specs: Sequence[Spec], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of no rows whose graph leads to the inputs, which have no rows either."""
    return list(_Absent.apply(specs, _leaf(torch.is_grad_enabled(), inputs[0]), *inputs))


def _leaf(needs: bool, like: Tensor) -> Tensor | None:
    """Return an input that requires a gradient, so that a result does on every rank."""
    return torch.empty(0, device=like.device, requires_grad=True) if needs else None


def _spans(counts: Sequence[int]) -> list[range]:
    """Return the numbers of each rank's rows."""
    ends = list(accumulate(counts))
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]


def _overlap(a: range, b: range) -> range:
    return range(max(a.start, b.start), min(a.stop, b.stop))


def _within(rows: range, held: range) -> slice:
    """Return the slice of these rows in a tensor that has the rows `held`."""
    return slice(rows.start - held.start, rows.stop - held.start)
