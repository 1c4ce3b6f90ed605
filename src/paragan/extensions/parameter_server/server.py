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
from paragan.extensions.parameter_server.messages import NetworkChange, ServerLinks, StalenessBound, receive_from
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.snapshot import packed
from paragan.schemes.base.concurrent import StalenessLog

_POLL_S = 0.001  # wait for one worker, while another may have sent


class Server:
    """Steps of one game: each contains a step of every worker, and perhaps more of faster ones.

    For the record, in steps: `ages`, how many steps of all workers were made since the weights of a
    gradient were sent; `ahead`, how far its worker was ahead of the slowest. staleness_logs: `used` is
    the worker of each gradient.
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
        steps = gan.clock.step
        self._applied = {side: [num * steps for _ in self._workers] for side, num in self.bound.per_step.items()}
        self._num_received = [0 for _ in self._workers]  # gradients, by worker
        self._unanswered = list(product(self._workers, (Side.D, Side.G)))
        self._changes: dict[int, NetworkChange] = {}  # of an incomplete turn, at S = 0
        self._packed: dict[Side, Tensor] = {}  # current weights
        self._updates: dict[Side, Update] = {}  # the newest of this step
        self._apply = self._apply_one if staleness else self._apply_when_complete
        self._send_weights()

    def step(self, batches: Iterator[Batch]) -> Report:
        """Apply gradients until every worker has made this step."""
        (*_, rows) = [real.rows for real in islice(batches, self.gan.d.updates_per_step)]
        self._updates = {}
        step = self.gan.clock.step + 1
        while any(self._complete_turns(side) < per_step * step for side, per_step in self.bound.per_step.items()):
            i, message = self._next_message()
            side = self.bound.turns[self._num_received[i] % len(self.bound.turns)]
            self._record(i, side, message)
            self._num_received[i] += 1
            self._apply(i, side, NetworkChange.read(message.data, self._players[side].net), rows)
            self._send_weights()
        return self.gan.report(rows.total, self._updates)

    def quiesce(self) -> None:
        """Return at once: a step ends with all messages that were sent for it."""

    def close(self) -> None:
        """Close the links."""
        self._links.close()

    def _apply_one(self, i: int, side: Side, change: NetworkChange, rows: Rows) -> None:
        """Update by the mean over this worker's rows alone."""
        share = rows.shares(len(self._workers))[i]
        if share.count != rows.total:  # a worker divides by the whole batch, and this update has its rows alone
            change = change.scaled(rows.total / share.count)
        self._update(side, change, share)
        self._applied[side][i] += 1
        self._unanswered.append((i, side))

    def _apply_when_complete(self, i: int, side: Side, change: NetworkChange, rows: Rows) -> None:
        """Update once by the whole batch, when the share of the last worker has arrived."""
        self._changes[i] = change
        if len(self._changes) < len(self._workers):
            return
        self._update(side, NetworkChange.total([self._changes[j] for j in self._workers]), rows)
        self._changes = {}
        for j in self._workers:
            self._applied[side][j] += 1
            self._unanswered.append((j, side))

    def _update(self, side: Side, change: NetworkChange, rows: Rows) -> None:
        player = self._players[side]
        norm = change.apply(player, rows.count)
        self._packed.pop(side, None)
        self._updates[side] = Update({"gradient_norm": norm}, rows, player.version)

    def _send_weights(self) -> None:
        """Answer gradients with weights, once these contain the turns that the worker requires."""
        for i, side in list(self._unanswered):
            complete = self._complete_turns(side)
            player = self._players[side]
            if complete < self.bound.required_turns(side, self._applied[side][i]):
                continue
            if side not in self._packed:
                self._packed[side] = packed(player.strategy.weights(player.net)).cpu()
            self._links.pairs[i][0].send(Message(version=player.version, data=self._packed[side], note=complete))
            self._unanswered.remove((i, side))

    def _complete_turns(self, side: Side) -> int:
        return min(self._applied[side])

    def _record(self, i: int, side: Side, message: Message) -> None:
        applied = self._applied[side][i]
        complete = self._complete_turns(side)
        required = self.bound.required_turns(side, applied)
        assert message.note >= required, "gradients of older weights than allowed"
        self.staleness_logs[side.value].used.append(i)
        self.ages[self.bound.to_steps(side, complete - message.note)] += 1
        self.ahead[self.bound.to_steps(side, applied - complete)] += 1

    @phase(Phase.COMMUNICATION)
    def _next_message(self) -> tuple[int, Message]:
        """Return the number of a worker that has sent gradients, and its message."""
        began = time.monotonic()
        d_turns = self._applied[Side.D]
        g_turns = self._applied[Side.G]
        slowest = min(self._workers, key=lambda i: (i in self._changes, d_turns[i], g_turns[i]))
        while time.monotonic() - began < self.roles.timeout_s:
            for i in (*self._workers, slowest):
                wait_s = _POLL_S if i == slowest else 0.0
                message = receive_from(f"the worker on rank {i + 1}", self._links.pairs[i][1], wait_s)
                if message is not None:
                    return i, message
        raise RankError(f"the worker on rank {slowest + 1} has sent no gradients for {self.roles.timeout_s:.0f} s")
