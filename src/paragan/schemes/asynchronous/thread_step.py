"""Asynchronous steps in one process: D in the training thread, G in a second thread.

Messages between the threads stay on their device.
"""

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch

from paragan.core.errors import RankError
from paragan.core.network_factory import copy_networks
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.links.link import Message, timeout_error
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import Snapshot
from paragan.game.turn_context import differentiable_attention
from paragan.hardware.device import SideStream, mark_ready, wait_until_ready
from paragan.schemes.asynchronous.fakes import FakesReceiver, FakesSender, empty_rows
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.two_players import DiscriminatorStep, GeneratorStep
from paragan.schemes.base.concurrent import StalenessLog


class ThreadStep:
    """Steps of one game in two threads.

    G's step starts together with D's, and may lag as far as the staleness allows.
    """

    def __init__(self, gan: GAN, first: Batch, limits: StalenessLimit) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan = gan
        fakes = ThreadLink(limits.max_in_flight, limits.timeout_s)
        states = ThreadLink(limits.max_in_flight, limits.timeout_s)
        self._pending: list[Future[Update]] = []  # G's steps that D has begun, oldest first
        self._is_stopping = threading.Event()
        g_limits = replace(limits, stopped=self._is_stopping.is_set)
        d_limits = replace(limits, stopped=lambda: self._failed_step() is not None)
        opponent = Snapshot(copy_networks(gan.d.net), gan.d.calling, gan.d.version)
        sender = FakesSender([fakes], limits.rounds_fakes, in_process=True)
        receiver = FakesReceiver([fakes], empty_rows(gan, first), limits.rounds_fakes)
        self.generator = GeneratorStep(gan=gan, opponent=opponent, fakes=sender, states=states, limits=g_limits)
        self.discriminator = DiscriminatorStep(
            gan=gan, fakes=receiver, states=[states], limits=d_limits, in_process=True
        )
        self._device = gan.g.strategy.device(gan.g.net)
        self._stream = SideStream(self._device)
        threads = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "G", torch.set_num_threads, (threads,))
        self._newest_g_update: Update | None = None
        # Of both players, for the attention of either thread: torch has one choice of kernels for the process, which
        # would otherwise depend on what the other thread computes.
        self._penalties = [penalty for of_player in gan.penalties.values() for penalty in of_player]

    @property
    def staleness_logs(self) -> dict[str, StalenessLog]:
        return {"g": self.generator.log, "d": self.discriminator.log}

    def step(self, reals: list[Batch]) -> Report:
        """Run D's step while G's thread runs its step; raises the errors of both."""
        self._pending.append(self._thread.submit(self._g_step, reals, mark_ready(self._device)))
        try:
            with differentiable_attention(self._penalties):
                d = self.discriminator.step(reals)
            self._wait_for_g(max_pending=self.generator.staleness)
        except BaseException as error:
            self._is_stopping.set()
            if isinstance(error, RankError) and (failed := self._failed_step()) is not None:
                failed.result()  # raises the error of G's thread, the cause
            raise
        updates = {Side.D: d} if self._newest_g_update is None else {Side.D: d, Side.G: self._newest_g_update}
        return self.gan.report(reals[-1].rows.total, updates)

    def quiesce(self) -> None:
        """Wait until G has made all its steps and has D's newest state, exactly.

        A run that resumes here starts from that state; during steps, D may send rounded differences.
        """
        self._wait_for_g(max_pending=0)
        opponent = self.generator.opponent
        d_version = self.gan.d.version
        has_newest = opponent.version >= d_version and opponent.is_exact
        if not has_newest:
            self.discriminator.publish_exactly()
            self.generator.wait_for_d(d_version // self.generator.limits.k)  # k updates of D are one step
        self.generator.forget_change()

    def close(self) -> None:
        """Stop G's thread."""
        self._is_stopping.set()
        self._thread.shutdown()

    def _g_step(self, reals: list[Batch], loaded: torch.Event | None) -> Update:
        with self._stream, differentiable_attention(self._penalties):
            self._stream.wait(loaded)
            return self.generator.step(reals)

    def _wait_for_g(self, max_pending: int) -> None:
        """Wait until G is at most that many steps late.

        The oldest steps are waited for, also if later ones are done: what a report has never depends on G's speed.
        """
        while len(self._pending) > max_pending:
            self._newest_g_update = self._pending[0].result(self.generator.limits.timeout_s)
            del self._pending[0]

    def _failed_step(self) -> Future[Update] | None:
        return next((step for step in self._pending if step.done() and step.exception() is not None), None)


class ThreadLink:
    """Both ends of a link between threads. capacity: messages in flight. `RankError` on a time-out.

    On an accelerator the receiver's stream waits for the work of the sender's stream, the host does not.
    """

    def __init__(self, capacity: int = 2, timeout_s: float = 300.0) -> None:
        self.timeout_s = timeout_s
        self._queue: queue.Queue[Message] = queue.Queue(capacity)

    def send(self, message: Message) -> None:
        """Add a message, as soon as the queue has room."""
        tensor = next(iter(message.tensors.values()), message.data)  # for its device
        try:
            self._queue.put(replace(message, ready=mark_ready(tensor.device)), timeout=self.timeout_s)
        except queue.Full:
            raise timeout_error("the other thread", self.timeout_s) from None

    def receive(self, wait_s: float) -> Message | None:
        """Return the next message; None after `wait_s`."""
        try:
            message = self._queue.get(timeout=wait_s)
        except queue.Empty:
            return None
        wait_until_ready(message.ready, (message.data, *message.tensors.values()))
        return message
