"""Fakes on their way from the ranks of G to the ranks of D whose rows they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paragan.core.types import Rows
from paragan.distributed.transports.link import Message, ReceiveEnd, SendEnd


@dataclass(frozen=True)
class FakesMessage:
    """Images of one version and their labels, on the host. note: what G's ranks say beside."""

    images: Tensor
    y_B: Tensor | None
    version: int
    note: int = 0


class FakesSender:
    """From one rank of G: every rank of D gets, of the images made here, those among its share of the batch.

    posts: by rank of D; None where it never gets any from here.
    """

    def __init__(self, posts: Sequence[SendEnd | None]) -> None:
        self.posts = posts

    def send(self, rows: Rows, images: Tensor, y_B: Tensor | None, version: int, note: int = 0) -> None:
        """rows: of the batch that was made, whose images are here."""
        images, y_B = images.cpu(), None if y_B is None else y_B.cpu()
        for post, share in zip(self.posts, _shares(rows.total, len(self.posts)), strict=True):
            cut = _common(rows, share)
            if post is not None:
                data = _bytes(images[cut], None if y_B is None else y_B[cut])
                post.send(Message(version, data, note))

    def close(self) -> None:
        for post in self.posts:
            if post is not None:
                post.close()


class FakesReceiver:
    """At one rank of D: what the ranks of G have sent for one version, as one delivery in the order of rows.

    like: one image, on the host; labelled: images come with labels.
    """

    def __init__(self, inboxes: Sequence[ReceiveEnd], like: Tensor, labelled: bool) -> None:
        self.inboxes, self.like, self.labelled = inboxes, like, labelled
        self._come: list[Message] = []  # of the delivery under way

    def receive(self, wait_s: float) -> FakesMessage | None:
        """The next; None if it is not complete within `wait_s` for each part."""
        while len(self._come) < len(self.inboxes):
            message = self.inboxes[len(self._come)].receive(wait_s)
            if message is None:
                return None
            self._come.append(message)
        come, self._come = self._come, []
        assert len({message.version for message in come}) == 1, "ranks of G send the same versions"
        parts = [_images(message.data, self.like, self.labelled) for message in come]
        labels = [y_B for _, y_B in parts if y_B is not None]
        note = max(message.note for message in come)
        images = torch.cat([images for images, _ in parts])
        return FakesMessage(images, torch.cat(labels) if labels else None, come[0].version, note)

    def close(self) -> None:
        for inbox in self.inboxes:
            inbox.close()


def pairs(total: int, num_g: int, num_d: int) -> list[tuple[int, int]]:
    """(rank of G, rank of D) that have rows of a batch of `total` in common, where either role shares all of it."""
    of_g, of_d = _shares(total, num_g), _shares(total, num_d)
    return [(i, j) for i in range(num_g) for j in range(num_d) if _overlap(of_g[i], of_d[j])]


def _shares(total: int, ranks: int) -> tuple[Rows, ...]:
    return Rows(0, 0, total, total).shares(ranks)


def _common(here: Rows, share: Rows) -> slice:
    """Which of the images of `here` belong to `share`."""
    first = max(here.first, share.first)
    return slice(first - here.first, first - here.first + _overlap(here, share))


def _overlap(a: Rows, b: Rows) -> int:
    return max(0, min(a.first + a.count, b.first + b.count) - max(a.first, b.first))


def _bytes(images: Tensor, y_B: Tensor | None) -> Tensor:
    held = [images] if y_B is None else [images, y_B]
    return torch.cat([value.detach().contiguous().reshape(-1).view(torch.uint8) for value in held])


def _images(data: Tensor, like: Tensor, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """What `_bytes` was given."""
    image = like.numel() * like.element_size()
    count = len(data) // (image + 8 * labelled)
    images = data[: count * image].clone().view(like.dtype).view(count, *like.shape)
    return images, data[count * image :].clone().view(torch.int64) if labelled else None
