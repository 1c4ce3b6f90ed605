"""Rank that holds both players: it applies the workers' gradients and sends new weights."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, product

from torch import Tensor

from paragan.core.errors import RankError
from paragan.core.phases import Phase, phase
from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Rows, Side, Update
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.messages import NetworkChange
from paragan.extensions.parameter_server.server_links import ServerLinks
from paragan.extensions.parameter_server.staleness_bound import StalenessBound
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import packed
from paragan.schemes.base.concurrent import StalenessLog

_POLL_S = 0.001  # wait for one worker, while another may have sent


class Server:
    """Steps of one game: each contains a step of every worker, and perhaps more of faster ones.

    Workers are numbered from 0; worker i is rank i + 1. For the record, in steps: `ages`, how many
    steps of all workers were made since the weights of a gradient were sent; `ahead`, how far its
    worker was ahead of the slowest. staleness_logs: `used` is the worker of each gradient.
    """

    def __init__(self, gan: GAN, roles: Roles, staleness: int) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan = gan
        self.roles = roles
        self.bound = StalenessBound.of(gan, staleness)
        self.staleness_logs: Mapping[str, StalenessLog] = {side.value: StalenessLog() for side in Side}
        self.ages: Counter[int] = Counter()
        self.ahead: Counter[int] = Counter()
        self._players = {Side.G: gan.g, Side.D: gan.d}
        self._links = ServerLinks(roles, gan, self.bound.max_in_flight)
        self._workers = range(len(self._links.pairs))
        # turns of each side that have been applied, by worker
        self._applied = {side: [n * gan.clock.step] * len(self._workers) for side, n in self.bound.per_step.items()}
        self._num_received = [0] * len(self._workers)  # gradients, by worker
        # (worker, side) for which weights are to be sent: at first all
        self._unanswered = list(product(self._workers, (Side.D, Side.G)))
        self._changes: dict[int, NetworkChange] = {}  # by worker, of an incomplete turn, at S = 0
        self._packed: dict[Side, Tensor] = {}  # current weights, as they are sent
        self._updates: dict[Side, Update] = {}  # the newest of this step
        self._apply = self._apply_one if staleness else self._apply_when_complete
        self._send_weights()

    def step(self, batches: Iterator[Batch]) -> Report:
        """Apply gradients until every worker has made this step."""
        # the images are not used here, but a step reads as many batches as on the workers
        rows = [real.rows for real in islice(batches, self.gan.d.updates_per_step)][-1]
        self._updates = {}
        step = self.gan.clock.step + 1
        while any(self._complete_turns(side) < per_step * step for side, per_step in self.bound.per_step.items()):
            worker, message = self._next_message()
            side = self.bound.turns[self._num_received[worker] % len(self.bound.turns)]
            self._record(worker, side, message)
            self._num_received[worker] += 1
            self._apply(worker, side, NetworkChange.read(message.data, self._players[side].net), rows)
            self._send_weights()
        return self.gan.report(rows.total, self._updates)

    def quiesce(self) -> None:
        """Return at once: a step ends with all messages that were sent for it."""

    def close(self) -> None:
        """Close the links."""
        self._links.close()

    def _apply_one(self, worker: int, side: Side, change: NetworkChange, rows: Rows) -> None:
        """Update by the mean over this worker's rows alone."""
        share = rows.shares(len(self._workers))[worker]
        # a worker divides by the whole batch, and this update has its rows alone
        self._update(side, change.scaled(rows.total / share.count), share)
        self._applied[side][worker] += 1
        self._unanswered.append((worker, side))

    def _apply_when_complete(self, worker: int, side: Side, change: NetworkChange, rows: Rows) -> None:
        """Update once by the whole batch, when the share of the last worker has arrived."""
        self._changes[worker] = change
        if len(self._changes) < len(self._workers):
            return
        in_order = [self._changes[number] for number in self._workers]  # of workers, so that sums do not depend on time
        self._update(side, NetworkChange.total(in_order), rows)
        self._changes = {}
        for number in self._workers:
            self._applied[side][number] += 1
            self._unanswered.append((number, side))

    def _update(self, side: Side, change: NetworkChange, rows: Rows) -> None:
        player = self._players[side]
        norm = change.apply(player, rows.count)
        self._packed.pop(side, None)  # older weights now
        self._updates[side] = Update({"gradient_norm": norm}, rows, player.version)

    def _send_weights(self) -> None:
        """Answer gradients with weights, once these are new enough for the worker's next turn."""
        for worker, side in list(self._unanswered):
            complete = self._complete_turns(side)
            if self._lag(side, worker, complete) > self.bound.staleness:
                continue
            player = self._players[side]
            if side not in self._packed:
                self._packed[side] = packed(player.strategy.weights(player.net)).cpu()
            message = Message(version=player.version, data=self._packed[side], note=complete)
            self._links.pairs[worker].send(message)
            self._unanswered.remove((worker, side))

    def _complete_turns(self, side: Side) -> int:
        """Return how many turns every worker has made."""
        return min(self._applied[side])

    def _record(self, worker: int, side: Side, message: Message) -> None:
        """Count how old the weights of a gradient were, and how far its worker is ahead."""
        complete = self._complete_turns(side)
        assert self._lag(side, worker, message.note) <= self.bound.staleness, "gradients of older weights than allowed"
        self.staleness_logs[side.value].used.append(worker)
        self.ages[self.bound.to_steps(side, complete - message.note)] += 1
        self.ahead[self._lag(side, worker, complete)] += 1

    def _lag(self, side: Side, worker: int, complete: int) -> int:
        """Return how many steps of a worker weights lack that have `complete` turns of every worker."""
        return self.bound.to_steps(side, self._applied[side][worker] - complete)

    @phase(Phase.COMMUNICATION)
    def _next_message(self) -> tuple[int, Message]:
        """Return the number of a worker that has sent gradients, and its message."""
        began = time.monotonic()
        slowest = min(self._workers, key=lambda worker: self._num_received[worker])
        while time.monotonic() - began < self.roles.timeout_s:
            for worker in self._workers:
                message = self._links.pairs[worker].receive(_POLL_S if worker == slowest else 0.0)
                if message is not None:
                    return worker, message
        raise RankError(f"{self._links.pairs[slowest].peer} has sent no gradients for {self.roles.timeout_s:.0f} s")
