"""Messages with fakes and what belongs to them, from ranks of G to ranks of D with the same rows.

Samples may be rounded to bfloat16; labels and all other tensors are exact. Between two ranks a
message travels over the host; within a process it stays on its device.
"""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from paragan.core.protocols import Turn
from paragan.core.skipped_state import Place
from paragan.core.tree import concatenate_rows, pad_rows
from paragan.core.types import Batch, Rows, TurnInputs
from paragan.distributed.links.link import Message, ReceiveEnd, SendEnd
from paragan.game.gan import GAN
from paragan.game.snapshot import num_bytes, packed, unpacked

_SIZE_BYTES = 8  # of one size of a tensor, in front of the values


class FakesSender:
    """Sender of one rank's samples to the ranks of D, which receive those in their batch share.

    senders: by rank of D; None for a rank that shares no rows with this one. is_rounded: samples
    are sent in bfloat16. in_process: messages are tensors on their device, not bytes on the host.
    """

    def __init__(self, senders: Sequence[SendEnd | None], is_rounded: bool = False, in_process: bool = False) -> None:
        self.senders = senders
        self.is_rounded = is_rounded
        self.in_process = in_process

    def send(self, rows: Rows, tensors: Mapping[str, Tensor], version: int, note: int = 0) -> None:
        """Send samples of these rows of the global batch (`Prior.judged`). note: `PlayerStep.note`, an alarm or 0."""
        outgoing = _in_sent_dtypes({name: tensor.detach() for name, tensor in tensors.items()}, self.is_rounded)
        if not self.in_process:
            outgoing = {name: tensor.cpu() for name, tensor in outgoing.items()}
        for sender, share in zip(self.senders, _shares(rows.total, len(self.senders)), strict=True):
            common = _common(rows, share)
            if sender is not None:
                part = {name: tensor[common] for name, tensor in outgoing.items()}
                sender.send(self._message(part, version, note))

    def _message(self, tensors: Mapping[str, Tensor], version: int, note: int) -> Message:
        if self.in_process:
            copies = {name: tensor.clone() for name, tensor in tensors.items()}
            return Message(version=version, data=torch.empty(0, dtype=torch.uint8), note=note, tensors=copies)
        return Message(version=version, data=_pack(tensors), note=note)


class FakesReceiver:
    """Receiver on one rank of D; joins what all ranks of G sent for one version, in row order.

    like: one row of each tensor, in the order of `Prior.judged`. is_rounded: as of the sender.
    """

    def __init__(self, receivers: Sequence[ReceiveEnd], like: Mapping[str, Tensor], is_rounded: bool = False) -> None:
        self.receivers = receivers
        self.like = like
        self._like_sent = _in_sent_dtypes(like, is_rounded)
        self._received: list[Message] = []  # of an incomplete delivery

    def receive(self, wait_s: float) -> Message | None:
        """Return the next delivery; None if a part of it does not arrive within `wait_s`."""
        # By rank, so that the rows are in order; what has come stays here if the next one is late.
        while len(self._received) < len(self.receivers):
            message = self.receivers[len(self._received)].receive(wait_s)
            if message is None:
                return None
            self._received.append(message)
        messages = self._received
        self._received = []
        versions = {message.version for message in messages}
        assert len(versions) == 1, "ranks of G send the same versions"
        tensors = concatenate_rows([self._tensors(message) for message in messages])
        # the largest note: an alarm of any rank of G counts (`PlayerStep.note`)
        return replace(messages[0], tensors=tensors, note=max(message.note for message in messages))

    def _tensors(self, message: Message) -> dict[str, Tensor]:
        tensors = message.tensors or _unpack(message.data, self._like_sent)  # a thread of this process sends tensors
        return {name: tensor.to(self.like[name].dtype) for name, tensor in tensors.items()}


def overlapping_ranks(total: int, num_g: int, num_d: int) -> list[tuple[int, int]]:
    """Return all (rank of G, rank of D) with common rows of a batch, which each role divides."""
    g_rows = _shares(total, num_g)
    d_rows = _shares(total, num_d)
    ranks = itertools.product(range(num_g), range(num_d))  # computed by every rank: no message is needed for it
    return [(g_rank, d_rank) for g_rank, d_rank in ranks if _num_common(g_rows[g_rank], d_rows[d_rank])]


def _shares(total: int, ranks: int) -> tuple[Rows, ...]:
    return Rows(step=0, first=0, count=total, total=total).shares(ranks)


def _common(rows: Rows, share: Rows) -> slice:
    """Return the part of `rows` that belongs to `share`."""
    first = max(rows.first, share.first) - rows.first
    return slice(first, first + _num_common(rows, share))


def _num_common(a: Rows, b: Rows) -> int:
    return max(0, min(a.first + a.count, b.first + b.count) - max(a.first, b.first))


def judged_tensors(gan: GAN, feed: TurnInputs, fakes: Tensor) -> dict[str, Tensor]:
    """Return fakes of these inputs, and what belongs to them (`Prior.judged`)."""
    sample, *others = gan.prior.judged
    assert feed.real is not None
    if (real := feed.real.tensors.get(sample)) is not None:
        fakes = fakes.to(real.dtype)
    return {sample: fakes, **{name: feed.tensors[name] for name in others}}


def with_received(turn: Turn, tensors: Mapping[str, Tensor]) -> Turn:
    """Return D's turn with fakes and what belongs to them.

    Nothing else that was drawn for the turn remains: it belongs to other fakes. Rows that are
    shorter than the real ones, or longer, are padded.
    """
    assert turn.feed.real is not None
    received = dict(tensors)
    real = dict(turn.feed.real.tensors)
    for name in tensors:
        if name in real:
            received[name], real[name] = pad_rows([received[name], real[name]])
    fakes = received.pop(turn.feed.sample_name)
    batch = replace(turn.feed.real, tensors=real)
    return replace(turn, feed=replace(turn.feed, tensors=received, real=batch, fakes=(fakes,)))


def empty_rows(gan: GAN, real: Batch) -> dict[str, Tensor]:
    """Return tensors without values, of the shape and type of one row of each judged tensor."""
    # labels are drawn where the data has none
    tensors = {"label": torch.empty(1, dtype=torch.int64), **real.tensors}
    judged = {name: tensors[name] for name in gan.prior.judged}
    return {name: torch.empty(tensor.shape[1:], dtype=tensor.dtype) for name, tensor in judged.items()}


def bound_of_messages(like: Mapping[str, Tensor], rows: int) -> int:
    """Return the size of a message with so many rows that are not rounded."""
    return rows * num_bytes(like.values()) + _SIZE_BYTES * _num_sizes(like)


def _in_sent_dtypes(tensors: Mapping[str, Tensor], is_rounded: bool) -> dict[str, Tensor]:
    """Return tensors in the formats in which they are sent; the first one is the sample."""
    sample = next(iter(tensors))
    if is_rounded and tensors[sample].is_floating_point() and tensors[sample].element_size() > 2:
        return {**tensors, sample: tensors[sample].to(torch.bfloat16)}
    return dict(tensors)


def _num_sizes(like: Mapping[str, Tensor]) -> int:
    """Return how many sizes a message has: the number of rows, and the axes of a row, of each tensor."""
    return sum(1 + row.dim() for row in like.values())


def _pack(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sizes of the tensors and their values, as bytes."""
    sizes = torch.tensor([size for tensor in tensors.values() for size in tensor.shape])
    return torch.cat([packed({"sizes": sizes}), packed(tensors)])


def _unpack(data: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of one message."""
    end = _SIZE_BYTES * _num_sizes(like)
    sizes = iter(data[:end].clone().view(torch.int64).tolist())  # `view` needs bytes that begin at a multiple of 8
    shapes = [[next(sizes) for _ in range(1 + row.dim())] for row in like.values()]
    pairs = zip(shapes, like.values(), strict=True)
    expected = [torch.empty(shape, dtype=row.dtype, device="meta") for shape, row in pairs]
    return dict(zip(like, unpacked("fakes", data[end:], expected), strict=True))


@dataclass(frozen=True)
class RemoteGenerator:
    """`Opponent` and `Network` in place of the generator on other ranks, whose fakes have arrived."""

    version: int
    module: Any = None
    mixes: bool = False
    buffers: tuple[Place, ...] = ()

    def network(self) -> Self:
        return self

    def __call__(self, *inputs: Tensor | None) -> Any:
        raise AssertionError("the generator is on other ranks: its fakes come with the turn")

    def frozen(self) -> AbstractContextManager[None]:
        return nullcontext()
