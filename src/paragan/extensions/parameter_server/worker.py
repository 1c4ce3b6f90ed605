"""Rank that computes the gradients of both players on copies, and sends them to the server."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, cycle, islice

from paragan.core.errors import RankError
from paragan.core.phases import Phase, phase
from paragan.core.protocols import Opponent, Turn
from paragan.core.roles import Roles
from paragan.core.types import Batch, Report, Side, Update
from paragan.distributed.links.link import Message
from paragan.extensions.parameter_server.messages import load_packed, pack_change
from paragan.extensions.parameter_server.server_links import ServerLinks
from paragan.extensions.parameter_server.staleness_bound import StalenessBound
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes.base.concurrent import StalenessLog

_POLL_S = 0.1  # between two checks of the time while waiting
_GRACE_S = 5.0  # added to the time-out: the server, which knows the slow worker, fails first


class GradientWorker:
    """Steps of one game on this rank's rows.

    The players of this rank compute gradients and never step. Their `version` counts turns of this
    rank, so that periodic work is due on all workers at once, and as often as without a server.
    staleness_logs: lags, in steps, of the older of the two networks of a turn; `used` is the number of
    answers of the server that it had.
    """

    def __init__(self, gan: GAN, roles: Roles, staleness: int) -> None:
        assert isinstance(gan.g, Player) and isinstance(gan.d, Player)
        self.gan = gan
        self.roles = roles
        self.bound = StalenessBound.of(gan, staleness)
        self.staleness_logs: Mapping[str, StalenessLog] = {side.value: StalenessLog() for side in Side}
        self._players = {Side.G: gan.g, Side.D: gan.d}
        for side, player in self._players.items():
            player.version = self.bound.per_step[side] * gan.clock.step
        self._links = ServerLinks(roles, gan, self.bound.max_in_flight)
        (self._server,) = self._links.pairs
        # sides of the weights that the server sends, in order: first both as they are, then one for each turn
        self._answers = chain((Side.D, Side.G), cycle(self.bound.turns))
        self._num_expected = 2  # answers that have not come
        self._num_loaded = 0  # answers in this session
        self._complete: dict[Side, int] = {}  # turns of every worker that the weights of this rank contain
        self._versions: dict[Side, int] = {}  # versions that the server's players had with these weights
        self.quiesce()

    def step(self, batches: Iterator[Batch]) -> Report:
        """Run the turns of D and G, and send their gradients."""
        for real in islice(batches, self.gan.d.updates_per_step):
            d = self._run_turn(Side.D, self.gan.d_turn(real), against=self.gan.g)
        g = self._run_turn(Side.G, self.gan.g_turn(real), against=self.gan.d)
        return self.gan.observe(d, g)

    def quiesce(self) -> None:
        """Wait until every turn has been answered."""
        self._receive_until(lambda: not self._num_expected)

    def close(self) -> None:
        """Close the links."""
        self._links.close()

    def _run_turn(self, side: Side, turn: Turn, against: Opponent) -> Update:
        player = self._players[side]
        log = self.staleness_logs[side.value]
        log.record_wait(self._receive_until(lambda: self._lag() <= self.bound.staleness))
        log.lags[self._lag()] += 1
        log.used.append(self._num_loaded)
        computed = player.compute_gradients(turn, against)
        gradients = pack_change(player.net)
        self._server.send(Message(version=self._versions[side], data=gradients, note=self._complete[side]))
        self._num_expected += 1
        player.net.zero_grad()
        player.version += 1
        update = player.summarize(computed)
        # the server reports the norm of all gradients that it applies
        scalars = {name: value for name, value in update.scalars.items() if name != "gradient_norm"}
        return replace(update, scalars=scalars)

    def _lag(self) -> int:
        """Return how many steps of this rank are not in the older of the two players' weights."""
        turns = {side: player.version - self._complete[side] for side, player in self._players.items()}
        return max(self.bound.to_steps(side, number) for side, number in turns.items())

    @phase(Phase.COMMUNICATION)
    def _receive_until(self, is_ready: Callable[[], bool]) -> float:
        """Load all weights that have arrived, and more until `is_ready`; returns the seconds waited."""
        while (message := self._server.receive(0.0)) is not None:
            self._load(message)
        began = time.monotonic()
        while not is_ready():
            if (message := self._server.receive(_POLL_S)) is not None:
                self._load(message)
            elif (waited := time.monotonic() - began) > self.roles.timeout_s + _GRACE_S:
                raise RankError(f"{self._server.peer} has sent no weights for {waited:.0f} s")
        return time.monotonic() - began

    def _load(self, message: Message) -> None:
        """Load the weights of an answer."""
        side = next(self._answers)
        load_packed(self._players[side].net, message.data)
        self._complete[side] = message.note
        self._versions[side] = message.version
        self._num_expected -= 1
        self._num_loaded += 1
