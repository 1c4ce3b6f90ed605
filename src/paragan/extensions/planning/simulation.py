"""Simulated time of a run: clocks of all ranks, moved by the scheme's own order of turns.

A rank's update takes the profile's time times its jitter; an exchange starts when its last rank
arrives. What is sent in the background occupies the sender's link, and exchanges share it. Nothing
is trained: a step of 1,024 ranks is a few operations on arrays.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paragan.core.dist import Collective, RankExchange
from paragan.core.types import Rows, Side
from paragan.extensions.planning.cluster import (
    Cluster,
    Interconnect,
    Link,
    collective_seconds,
    exchange_bytes,
    hidden_seconds,
)
from paragan.extensions.planning.profile import RunProfile
from paragan.game.scheme import Scheme

Times = NDArray[np.float64]
Ranks = NDArray[np.int64]
Exchanges = Callable[[int, bool], Sequence[RankExchange]]


@dataclass(frozen=True, kw_only=True)
class GameCosts:
    """What is simulated. exchanges: of each side's strategy; see `Strategy.exchanges`.

    batch: of D, over all its ranks; g_batch: of G's turn; None: as many. spans_norms: whether
    statistics of batch norm span the ranks of a side.
    """

    profile: RunProfile
    scheme: Scheme
    exchanges: Mapping[Side, Exchanges]
    batch: int
    g_batch: int | None = None
    spans_norms: Mapping[Side, bool] = field(default_factory=lambda: dict.fromkeys(Side, True))


@dataclass(kw_only=True)
class SimulatedTime:
    """A `Timeline` of all ranks of a cluster. bytes: over all links, by kind."""

    game: GameCosts
    cluster: Cluster
    seed: int = 0
    step: int = field(default=0, init=False)
    bytes: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float), init=False)

    def __post_init__(self) -> None:
        size = self.cluster.workers
        profile = self.game.profile
        assigned = self.game.scheme.assign(size)
        sides = {side: assigned.get(side, assigned[Side.D]) for side in profile.players}
        self._ranks = {side: np.asarray(list(ranks)) for side, ranks in sides.items()}
        hosts = {side: ranks // self.cluster.network.workers_per_host for side, ranks in self._ranks.items()}
        self._per_host = {side: int(np.bincount(hosts_of_side).max()) for side, hosts_of_side in hosts.items()}
        self._is_split = not np.array_equal(self._ranks[Side.G], self._ranks[Side.D])
        self._now = np.zeros(size)  # clock of each rank
        self._link_free = np.zeros(size)  # time from which the link of each rank is free
        self._versions = dict.fromkeys(sides, 0)
        self._arrivals: dict[tuple[Side, int], Times] = {}  # by sender and version, on each receiver
        self._rows = {side: self._share(side) for side in sides}
        self._sizes = {side: np.unique(rows, return_inverse=True) for side, rows in self._rows.items()}
        self._random = np.random.default_rng([self.seed, 1])

    @property
    def d_updates(self) -> int:
        """Updates of D in a step."""
        return self.game.profile.d_updates

    def critics(self) -> Sequence[Sequence[Side]]:
        """Return, for each batch of a step, the players but G that it updates: each uses the last ones."""
        updates = {side: number for side, number in self.game.profile.updates.items() if side is not Side.G}
        critics = []
        for num_remaining in range(self.game.profile.batches_per_step, 0, -1):
            critics.append([side for side in updates if updates[side] >= num_remaining])
        return critics

    def run(self, num_steps: int) -> Times:
        """Simulate steps; return the time at which each ends on the last rank."""
        ends = np.zeros(num_steps)
        for number in range(num_steps):
            self.game.scheme.simulate(self)
            self.step += 1
            ends[number] = self._now.max()
        return ends

    def load(self) -> None:
        """Read a batch on the ranks of D."""
        seconds = self._per_rows(Side.D, self.game.profile.load_s.at)
        self._now[self._ranks[Side.D]] += seconds * self._slowdown(Side.D)

    def generate(self) -> None:
        """Generate one batch on the ranks of G."""
        profile = self.game.profile
        seconds = self._per_rows(Side.G, profile.generate_s.at)
        self._exchange_opponent(Side.G)
        self._compute(Side.G, seconds)
        self._synchronize_norms(Side.G, profile.generate_norms, 0)

    def update(self, side: Side, has_fakes: bool = False) -> None:
        """Run one update of a player, and the exchanges that its strategy has due."""
        profile = self.game.profile
        player = profile.players[side]
        seconds = self._per_rows(side, player.update_s.at)
        norms = player.norms
        if side is not Side.D and has_fakes:
            seconds = seconds - self._per_rows(side, profile.generate_s.at)
            norms -= profile.generate_norms
        for called in self._called(side, has_fakes):
            self._exchange_opponent(called)
        self._compute(side, seconds + self._between_seconds(side))
        self._synchronize_norms(side, norms, player.norm_bytes)
        self._versions[side] += 1
        for exchange in self.game.exchanges[side](player.weight_bytes, False):
            if self._versions[side] % exchange.every == 0:
                self._exchange(side, exchange, seconds / self.cluster.speed)

    def send_fakes(self, version: int, share: float = 1.0) -> None:
        """Send G's images to the ranks of D that hold the same rows of the batch."""
        if not self._is_split:  # two threads of one process
            return
        sources = self._ranks[Side.G]
        targets = self._ranks[Side.D]
        num_bytes = share * self.game.profile.fake_bytes * float(self._rows[Side.G].sum())
        first = np.arange(len(targets)) * len(sources) // len(targets)
        last = (np.arange(1, len(targets) + 1) * len(sources) - 1) // len(targets)
        link = _link_between(sources[np.stack([first, last])], targets, self.cluster.network)
        done = self._occupy(sources, num_bytes / len(sources), link)
        self._arrivals[Side.G, version] = np.maximum(done[first], done[last]) + link.latency_s
        self.bytes["fakes"] += num_bytes

    def send_state(self, version: int, share: float = 1.0) -> None:
        """Send D's state to every rank of G, from the ranks of D in turn."""
        if not self._is_split:
            return
        sources = self._ranks[Side.D]
        num_g = len(self._ranks[Side.G])
        num_bytes = share * self.game.profile.d.state_bytes
        serving = np.arange(num_g) * len(sources) // num_g
        served = np.bincount(serving, minlength=len(sources))
        link = _link_between(sources[serving], self._ranks[Side.G], self.cluster.network)
        done = self._occupy(sources, num_bytes * served, link)
        self._arrivals[Side.D, version] = done[serving] + link.latency_s
        self.bytes["states"] += num_bytes * num_g

    def wait(self, receiver: Side, version: int) -> None:
        """Wait for the message of a version, if one was sent."""
        arrivals = self._arrivals.get((Side.D if receiver is Side.G else Side.G, version))
        if arrivals is not None:
            ranks = self._ranks[receiver]
            self._now[ranks] = np.maximum(self._now[ranks], arrivals)

    def _called(self, side: Side, has_fakes: bool) -> list[Side]:
        """Return the players whose weights an update gathers; G's images of D's turn exist already."""
        extra = [Side(name) for name in self.game.profile.players[side].calls]
        if side is Side.D or (side.is_extra and has_fakes):
            return extra
        return [Side.D if side is Side.G else Side.G, *extra]

    def _share(self, side: Side) -> NDArray[np.int64]:
        """Return the rows of each rank of a side."""
        batch = self.game.batch
        if side is Side.G and self.game.g_batch is not None:
            batch = self.game.g_batch
        shares = Rows(step=0, first=0, count=batch, total=batch).shares(len(self._ranks[side]))
        return np.asarray([rows.count for rows in shares])

    def _per_rows(self, side: Side, cost: Callable[[float], float]) -> Times:
        """Return the cost of its rows for each rank of a side, computed once for each number of rows."""
        sizes, inverse = self._sizes[side]
        return np.asarray([cost(float(size)) for size in sizes])[inverse]

    def _between_seconds(self, side: Side) -> Times:
        """Return the part of an update in what lies between updates."""
        updates = 1 if self._is_split else sum(self.game.profile.updates.values())
        return self._per_rows(side, self.game.profile.between_s) / updates

    def _lone_share(self, rows: float) -> float:
        """Return the time of a step without the norms of several ranks, as a share of it."""
        profile = self.game.profile
        return profile.alone_step_s.at(rows) / max(profile.step_s.at(rows), 1e-12)

    def _slowdown(self, side: Side) -> Times:
        """Return the factor by which ranks are slower that share the cores of a host; 1: they are not."""
        profile = self.game.profile
        waiting = self.cluster.core_wait(profile.threads)
        return 1 + waiting * np.minimum(self._per_rows(side, profile.cpu_share.at), 1.0)

    def _compute(self, side: Side, seconds: Times) -> None:
        """Let the ranks of a side compute for so long, each with its jitter."""
        ranks = self._ranks[side]
        if self.cluster.workers == 1 or not self.game.spans_norms[side]:
            seconds = seconds * self._per_rows(side, self._lone_share)
        sigma = self.cluster.jitter
        # drawn even if there is no jitter, so that clusters that differ in one cause of loss have the same draws
        jitter = np.exp(sigma * self._random.standard_normal(len(ranks)) - sigma**2 / 2)  # of mean 1
        self._now[ranks] += seconds * jitter / self.cluster.speed * self._slowdown(side)

    def _synchronize_norms(self, side: Side, count: int, num_bytes: int) -> None:
        """Add the small all-reduces of batch norm, which make the ranks wait for one another."""
        num_ranks = len(self._ranks[side])
        if count and num_ranks > 1 and self.game.spans_norms[side]:
            exchange = RankExchange(kind=Collective.ALL_REDUCE, num_bytes=num_bytes)
            empty = replace(exchange, num_bytes=0)
            latency_s = collective_seconds(empty, num_ranks, self.cluster.network, self._per_host[side])
            # the ranks wait for one another once: after the first all-reduce, which has all bytes, they are together
            self._exchange(side, exchange, np.zeros(1), "norm")
            self._now[self._ranks[side]] += (count - 1) * latency_s

    def _exchange_opponent(self, side: Side) -> None:
        """Add the exchanges of an opponent's weights (`zero2`, `zero3`); on separate ranks it is a whole copy."""
        if self._is_split:
            return
        for exchange in self.game.exchanges[side](self.game.profile.players[side].weight_bytes, True):
            self._exchange(side, exchange, np.zeros(1))

    def _exchange(self, side: Side, exchange: RankExchange, update_s: Times, kind: str = "parameters") -> None:
        """Let the ranks of a side exchange something; it starts when the last one arrives."""
        ranks = self._ranks[side]
        if len(ranks) < 2:
            return
        seconds = collective_seconds(exchange, len(ranks), self.cluster.network, self._per_host[side])
        if exchange.overlaps:
            seconds -= hidden_seconds(exchange.num_bytes, seconds, float(update_s.max()))
        began = float(self._now[ranks].max())
        queued = np.maximum(self._link_free[ranks] - began, 0.0)
        # the exchange and what is queued share the link evenly until the shorter one ends: each waits for as much
        # of the other, and the link is free once it has sent both
        ends = began + seconds + np.minimum(queued, seconds)
        self._link_free[ranks] += np.where(queued > 0, seconds, 0.0)
        self._now[ranks] = ends.max()
        self.bytes[kind] += exchange_bytes(exchange, len(ranks))

    def _occupy(self, sources: NDArray[np.int64], num_bytes: float | NDArray[Any], link: Link) -> Times:
        """Queue messages on the links of ranks; return when each has left."""
        begins = np.maximum(self._now[sources], self._link_free[sources])
        self._link_free[sources] = begins + num_bytes / link.bytes_per_s
        return self._link_free[sources]


def _link_between(sources: Ranks, targets: Ranks, network: Interconnect) -> Link:
    """Return the link of a host if no message leaves it, else that between hosts."""
    is_inside = sources // network.workers_per_host == targets // network.workers_per_host
    return network.inside if is_inside.all() else network.between
