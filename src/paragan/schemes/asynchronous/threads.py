"""Both sides of an asynchronous step in one process: D in the thread that trains, G in one beside it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch

from paragan.core.errors import RankError
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.transports.thread_link import ThreadLink
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import Snapshot
from paragan.hardware.device import SideStream
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender
from paragan.schemes.asynchronous.sides import DiscriminatorSide, GeneratorSide


class ThreadStep:
    """Steps of one game. G is given a step when D begins it, and may be as late with it as the bound says."""

    def __init__(
        self, gan: GAN, first: Batch, buffer: Buffer, pace: LagBound, orders: Mapping[Side, Sequence[int]]
    ) -> None:
        self.gan = gan
        g, d = self._players()
        assert first.x_BCHW is not None
        like = torch.empty(first.x_BCHW.shape[1:], dtype=first.x_BCHW.dtype)
        fakes, states = ThreadLink(pace.room, pace.timeout_s), ThreadLink(pace.room, pace.timeout_s)
        self._late: list[Future[Update]] = []  # G's steps that D has begun, oldest first
        self._over = threading.Event()
        of_g = replace(pace, stopped=self._over.is_set, order=orders.get(Side.G))
        of_d = replace(pace, stopped=self._has_failed, order=orders.get(Side.D))
        opponent = Snapshot(copy.deepcopy(d.net), d.calling, d.version)
        self.generator = GeneratorSide(opponent, FakesSender([fakes]), states, of_g, d_parts=d.policy.micro_batches)
        self.critic = DiscriminatorSide(
            buffer, FakesReceiver([fakes], like, bool(gan.prior.num_classes)), [states], of_d
        )
        self._beside = SideStream(g.strategy.device(g.net))
        threads = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "G", initializer=lambda: torch.set_num_threads(threads))
        self._newest: Update | None = None

    @property
    def lag_records(self) -> dict[str, LagRecord]:
        return {"g": self.generator.lag_record, "d": self.critic.lag_record}

    def step(self, reals: list[Batch]) -> Report:
        self._late.append(self._thread.submit(self._g_step, reals))
        try:
            d = self.critic.step(self.gan, reals)
            self._wait(self.generator.bound)
        except BaseException as error:
            self._over.set()
            if isinstance(error, RankError) and self._has_failed():
                self._late[0].result()  # raises what has happened there
            raise
        updates = {Side.D: d} if self._newest is None else {Side.D: d, Side.G: self._newest}
        return self.gan.report(reals[-1].rows.total, updates)

    def quiesce(self) -> None:
        """G has made all its steps, and has seen what D made of them."""
        self._wait(0)
        _, d = self._players()
        if d.version > self.generator.opponent.version:
            self.generator.meet(d.version // self.generator.pace.k)

    def close(self) -> None:
        self._over.set()
        self._thread.shutdown()

    def _players(self) -> tuple[Player, Player]:
        g, d = self.gan.g, self.gan.d
        assert isinstance(g, Player) and isinstance(d, Player)
        return g, d

    def _g_step(self, reals: list[Batch]) -> Update:
        with self._beside:
            return self.generator.step(self.gan, [real.rows for real in reals])

    def _wait(self, late: int) -> None:
        """Until G is at most that many steps late."""
        while len(self._late) > late or (self._late and self._late[0].done()):
            self._newest = self._late[0].result(self.generator.pace.timeout_s)
            del self._late[0]

    def _has_failed(self) -> bool:
        return any(step.done() and step.exception() is not None for step in self._late)
