"""G and D that train at the same time, in two threads or on separate ranks.

With a staleness of S, G trains against the D of up to S steps ago: on several ranks each player has a group of ranks;
G's samples are sent to D's ranks, with the label or the tensors that D reads next to them, D's state to G's. At S = 0
this is `shared_fakes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.dist import ALONE
from paragan.core.roles import colocated_roles
from paragan.core.types import Batch, Report, Side
from paragan.game.gan import GAN
from paragan.game.needs import game_needs
from paragan.game.scheme import Timeline
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.players_on_ranks import PlayersOnRanks
from paragan.schemes.asynchronous.rank_step import RankStep
from paragan.schemes.asynchronous.thread_step import ThreadStep
from paragan.schemes.base.update_order import read_order

_SENT_BYTES = {"exact": 1.0, "bf16": 0.5}  # of those in float32


class PlayersAtOnce(PlayersOnRanks[ThreadStep | RankStep]):
    """G and D at the same time, each against a state of the other that may be some steps old."""

    has_threads = True

    def follows_order(self, num_ranks: int) -> bool:
        return True

    def can_end_at(
        self, num_steps: int, used: Mapping[Side, Sequence[Sequence[int]]], d_updates: int, d_version: int
    ) -> bool:
        num_d_updates = d_updates * num_steps
        # G has used versions of D, which go on from session to session; D deliveries of fakes, which begin at 1 in each
        newest_version = max(max(of_rank[:num_steps]) for of_rank in used[Side.G])
        newest_delivery = max(max(of_rank[:num_d_updates]) for of_rank in used[Side.D])
        num_deliveries = num_steps if self.options.reuse else num_d_updates
        return newest_version <= d_version + num_d_updates and newest_delivery <= num_deliveries

    @property
    def exact_scheme(self) -> str:
        return "shared_fakes" if self.options.reuse else "synchronous"

    def simulate(self, timeline: Timeline) -> None:
        step = timeline.step
        for _ in range(1 if self.options.reuse else timeline.d_updates):
            timeline.generate()
            timeline.send_fakes(step, _SENT_BYTES[self.options.fakes_dtype])
        timeline.wait(Side.D, step)  # for the fakes of this step
        for _ in range(timeline.d_updates):
            timeline.load()
            timeline.update(Side.D)
        timeline.send_state(step + 1, _SENT_BYTES[self.options.state_dtype])
        timeline.wait(Side.G, max(0, step + 1 - self.options.staleness))  # for the oldest state of D that it may use
        timeline.update(Side.G, has_fakes=self.options.reuse)

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Those of threads, or of separate ranks."""
        # G's thread, or another rank, would read the state of balancers and augmentations at any moment
        capabilities = ALL - {Capability.GRID, Capability.BALANCER, Capability.AUGMENT_STATE}
        # only fakes, with their labels or named tensors, travel between the players
        capabilities -= {Capability.EXTRA_PLAYERS, Capability.PAIRS, Capability.REAL_IN_G_TURN, Capability.PAUSES}
        if self.options.g_batch is not None:
            # counted in batches of D, which G's turns lack
            capabilities -= {Capability.SCHEDULES, Capability.BATCH_INPUTS}
        # a message between ranks has a known size; torch compiles in one thread at a time
        return capabilities - ({Capability.RAGGED} if self.is_split else {Capability.COMPILE})

    @property
    def holder(self) -> Holder:
        g_batch = self.options.g_batch
        holder = super().holder
        return holder if g_batch is None else replace(holder, name=f"{holder.name} with scheme.g_batch={g_batch}")

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run one step in the open session, or in a new one."""
        reals = list(islice(batches, gan.batches_per_step))
        return self._session_of(gan, lambda: self._make_session(gan, reals[0])).step(reals)

    def _make_session(self, gan: GAN, first: Batch) -> ThreadStep | RankStep:
        check_capabilities(self.holder, game_needs(gan))  # before G waits for an update of D
        roles = self._roles or colocated_roles(ALONE)
        order = self.options.order
        orders = {} if order is None else read_order(Path(order), roles, gan)
        limits = StalenessLimit(options=self.options, k=gan.d.updates_per_step, orders=orders)
        if not roles.is_split:
            return ThreadStep(gan, first, limits)
        # only here: a thread that failed is noticed without a time-out, a slow one is no failure
        return RankStep(gan, roles, first, replace(limits, timeout_s=roles.timeout_s))
