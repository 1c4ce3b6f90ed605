"""The two halves of an asynchronous step: what G's ranks do, and what D's ranks do, with messages between them.

S is the staleness bound, k D's updates per step. G's update number t plays against a D of at least k (t + 1 - S)
updates, D's step t is shown fakes of a G of at least t - S; whoever is ahead waits. With S = 0 nobody is ever ahead: G
waits for the D that its fakes have made.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import RankError
from paragan.core.types import Batch, Update
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player, fakes_for
from paragan.game.snapshot import Snapshot, packed
from paragan.transports._post import Inbox, Message, Post

_LOOK_S = 0.1  # how often somebody who waits looks whether to go on


@dataclass(frozen=True)
class Pace:
    """staleness: S. k: D's updates per step. reuse: D is shown the fakes of G's own turn, instead of some made for it.
    stopped: looked at while waiting; then it ends with a `RankError`.
    """

    staleness: int = 1
    k: int = 1
    reuse: bool = True
    timeout_s: float = 300.0
    stopped: Callable[[], bool] = lambda: False


@dataclass
class Told:
    """For the record. lags: how often the opponent, or a fake, was so many steps old. wait_s: seconds at the bound."""

    lags: Counter[int] = field(default_factory=Counter)
    wait_s: float = 0.0


class GeneratorSide:
    """opponent: D as it was sent last. fakes: to a rank of D; states: from it. d_parts: in which D takes its fakes."""

    def __init__(self, opponent: Snapshot, fakes: Post, states: Inbox, pace: Pace, d_parts: int = 1) -> None:
        self.opponent, self.fakes, self.states, self.pace, self.d_parts = opponent, fakes, states, pace, d_parts
        self.told = Told()

    def step(self, gan: GAN, reals: Sequence[Batch]) -> Update:
        """G's turn. reals: the rows of D's updates of this step, with images where G's objective needs them."""
        g = gan.g
        assert isinstance(g, Player)
        t, turn = g.version, gan.g_turn(reals[-1])
        if self.pace.reuse:
            made = g.rehearse(turn)
            turn = turn.given(made, t)
            self.fakes.send(Message(t, _bytes(turn.feed.in_order(made), turn.feed.y_B)))
        else:
            for real in reals:
                d_turn = gan.d_turn(real)
                images = d_turn.feed.in_order(fakes_for(d_turn, g.network(), self.d_parts))
                self.fakes.send(Message(t, _bytes(images, d_turn.feed.y_B)))
        self.meet(t + 1 - self.pace.staleness)
        self.told.lags[max(0, t + 1 - self.opponent.version // self.pace.k)] += 1
        return g.update(turn, against=self.opponent)

    def meet(self, step: int) -> None:
        """Take in what has come, and wait until D has made that many steps."""

        def has_come() -> bool:
            return self.opponent.version >= self.pace.k * step

        self.told.wait_s += _take(self.states, self._follow, has_come, self.pace, "D")

    def _follow(self, message: Message) -> None:
        self.opponent.follow(message.data, message.version)


class CriticSide:
    """buffer: of the fakes that have come. fakes: from a rank of G; states: to it. like: one fake, on the host;
    labelled: they come with labels.
    """

    def __init__(
        self, buffer: Buffer, fakes: Inbox, states: Post, pace: Pace, like: Tensor, labelled: bool = False
    ) -> None:
        self.buffer, self.fakes, self.states, self.pace = buffer, fakes, states, pace
        self.like, self.labelled = like, labelled
        self.told, self._num_taken = Told(), 0

    def step(self, gan: GAN, reals: Sequence[Batch]) -> Update:
        """D's turns, one for each batch; then its state is sent."""
        d = gan.d
        assert isinstance(d, Player)
        t = d.version // self.pace.k
        for real in reals:
            self.meet(t)
            drawn = self.buffer.draw(real.rows.count, real.rows.step)
            self.told.lags.update(max(0, t - version) for version in drawn.versions)
            version, device = max(drawn.versions), d.strategy.device(d.net)
            turn = gan.d_turn(real).given((drawn.images.to(device),), version)
            if drawn.y_B is not None:
                turn = turn.labelled(drawn.y_B.to(device))
            update = d.update(turn, against=_Elsewhere(version))
        self.states.send(Message(d.version, packed(d.strategy.weights(d.net)).cpu()))
        return update

    def meet(self, step: int) -> None:
        """Take in what has come, and wait for fakes of that step less the bound; without reuse for this turn's own."""
        before = self._num_taken

        def has_come() -> bool:
            if not self.pace.reuse:
                return self._num_taken > before
            return self.buffer.newest is not None and self.buffer.newest >= step - self.pace.staleness

        self.told.wait_s += _take(self.fakes, self._put, has_come, self.pace, "G", self.pace.reuse)

    def _put(self, message: Message) -> None:
        self._num_taken += 1
        self.buffer.put(*_images(message.data, self.like, self.labelled), message.version)


@dataclass(frozen=True)
class _Elsewhere:
    """The generator whose fakes are here already."""

    version: int
    module: Any = None
    mixes: bool = False

    def network(self) -> _Elsewhere:
        return self

    def __call__(self, *inputs: Tensor | None) -> Any:
        raise AssertionError("the generator is on other ranks: its fakes come with the turn")

    def frozen(self) -> AbstractContextManager[None]:
        return nullcontext()


def _take(
    inbox: Inbox,
    act: Callable[[Message], None],
    has_come: Callable[[], bool],
    pace: Pace,
    who: str,
    all_of_them: bool = True,
) -> float:
    """Act on what is there, then on what comes until `has_come`; the seconds waited."""
    while (all_of_them or not has_come()) and (found := inbox.receive(0.0)) is not None:
        act(found)
    began = time.monotonic()
    while not has_come():
        if (found := inbox.receive(_LOOK_S)) is not None:
            act(found)
        elif pace.stopped() or time.monotonic() - began > pace.timeout_s:
            raise RankError(f"{who}: nothing has come for {time.monotonic() - began:.0f} s, expected its next message")
    return time.monotonic() - began


def _bytes(images: Tensor, y_B: Tensor | None) -> Tensor:
    return packed({"x": images.cpu()} | ({} if y_B is None else {"y": y_B.cpu()}))


def _images(data: Tensor, like: Tensor, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """What `_bytes` was given."""
    image = like.numel() * like.element_size()
    count = len(data) // (image + 8 * labelled)
    images = data[: count * image].clone().view(like.dtype).view(count, *like.shape)
    return images, data[count * image :].clone().view(torch.int64) if labelled else None
