"""Messages with fakes, from the ranks of G to the ranks of D that hold the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.types import Batch, Rows, present_tensors
from paragan.distributed.transports.link import Message, ReceiveEnd, SendEnd
from paragan.game.gan import GAN
from paragan.game.snapshot import num_bytes, packed, unpacked


@dataclass(frozen=True)
class FakesMessage:
    """Images of one version of G and their labels, on the host. note: flag from G's ranks."""

    images: Tensor
    y_B: Tensor | None
    version: int
    note: int = 0


class FakesSender:
    """Sender of one rank's images to the ranks of D, which receive those in their batch share.

    senders: by rank of D; None for a rank that shares no rows with this one.
    """

    def __init__(self, senders: Sequence[SendEnd | None]) -> None:
        self.senders = senders

    def send(self, rows: Rows, images: Tensor, y_B: Tensor | None, version: int, note: int = 0) -> None:
        """Send images of these rows of the global batch."""
        images = images.cpu()
        y_B = None if y_B is None else y_B.cpu()
        for sender, share in zip(self.senders, _shares(rows.total, len(self.senders)), strict=True):
            cut = _common(rows, share)
            if sender is not None:
                data = packed(present_tensors(images=images[cut], labels=None if y_B is None else y_B[cut]))
                sender.send(Message(version, data, note))

    def close(self) -> None:
        """Close the links."""
        for sender in self.senders:
            if sender is not None:
                sender.close()


class FakesReceiver:
    """Receiver on one rank of D; joins what all ranks of G sent for one version, in row order.

    like: one image, on the host. has_labels: images come with labels.
    """

    def __init__(self, receivers: Sequence[ReceiveEnd], like: Tensor, has_labels: bool) -> None:
        self.receivers = receivers
        self.like = like
        self.has_labels = has_labels
        self._received: list[Message] = []  # of an incomplete delivery

    def receive(self, wait_s: float) -> FakesMessage | None:
        """Return the next delivery; None if a part of it does not arrive within `wait_s`."""
        while len(self._received) < len(self.receivers):
            message = self.receivers[len(self._received)].receive(wait_s)
            if message is None:
                return None
            self._received.append(message)
        messages = self._received
        self._received = []
        versions = {message.version for message in messages}
        assert len(versions) == 1, "ranks of G send the same versions"
        parts = [_unpack(message.data, self.like, self.has_labels) for message in messages]
        labels = [y_B for _, y_B in parts if y_B is not None]
        note = max(message.note for message in messages)
        images = torch.cat([images for images, _ in parts])
        y_B = torch.cat(labels) if labels else None
        return FakesMessage(images, y_B, messages[0].version, note)

    def close(self) -> None:
        """Close the links."""
        for receiver in self.receivers:
            receiver.close()


def overlapping_ranks(total: int, num_g: int, num_d: int) -> list[tuple[int, int]]:
    """Return all (rank of G, rank of D) with common rows of a batch, which each role divides."""
    g_rows = _shares(total, num_g)
    d_rows = _shares(total, num_d)
    ranks = itertools.product(range(num_g), range(num_d))
    return [(i, j) for i, j in ranks if _overlap(g_rows[i], d_rows[j])]


def _shares(total: int, ranks: int) -> tuple[Rows, ...]:
    return Rows(0, 0, total, total).shares(ranks)


def _common(here: Rows, share: Rows) -> slice:
    """Return the part of the images of `here` that belongs to `share`."""
    first = max(here.first, share.first)
    return slice(first - here.first, first - here.first + _overlap(here, share))


def _overlap(a: Rows, b: Rows) -> int:
    return max(0, min(a.first + a.count, b.first + b.count) - max(a.first, b.first))


def empty_sample(gan: GAN, real: Batch) -> Tensor:
    """Return a host tensor of the shape and type of one sample."""
    sample = real.tensors[gan.prior.arguments[0]]
    return torch.empty(sample.shape[1:], dtype=sample.dtype)


def _unpack(data: Tensor, like: Tensor, has_labels: bool) -> tuple[Tensor, Tensor | None]:
    """Return the images and labels of one message."""
    count = len(data) // (num_bytes([like]) + 8 * has_labels)
    kinds = [like.new_empty(count, *like.shape)]
    if has_labels:
        kinds.append(torch.empty(count, dtype=torch.int64))
    images, *labels = unpacked("fakes", data, kinds)
    return images, labels[0] if labels else None
