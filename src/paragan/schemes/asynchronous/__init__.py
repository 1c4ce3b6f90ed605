"""Players on ranks of their own: G and D train at the same time, or any number of players take turns.

With a staleness of S, G trains against the D of up to S steps ago (ParaGAN): on several ranks each player has a group
of ranks, which hold the state of the other only to call it; G's samples are sent to D's ranks, with the label or the
tensors that D reads next to them, D's state to G's. In one process they train in two threads. At S = 0 this is
`shared_fakes`; without `reuse` it is `synchronous`, in which players take turns, and there may be more than two.
Sources: the ParaGAN poster and arXiv 2411.03999 ("asynchronous"); bounded staleness: Ho et al. 2013.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, FilePath, Fraction, Natural, NotNegative, Positive
from paragan.core.roles import Roles, colocated_roles, ranks_by_side, split_roles
from paragan.core.source import TensorSpec
from paragan.core.types import Batch, Report, Side
from paragan.game.buffer import Buffer
from paragan.game.gan import GAN
from paragan.game.needs import game_needs
from paragan.game.scheme import Timeline
from paragan.schemes import synchronous
from paragan.schemes.asynchronous.player_step import StalenessLimit
from paragan.schemes.asynchronous.rank_step import RankStep
from paragan.schemes.asynchronous.thread_step import ThreadStep
from paragan.schemes.asynchronous.turn_step import TurnStep
from paragan.schemes.base.concurrent import ConcurrentScheme
from paragan.schemes.base.update_order import read_order

__all__ = ["Options", "Scheme"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Ranks of each player, and how far G and D may be apart (docs/how-to/machines/asynchronous.md)."""

    staleness: Natural = 1
    """Steps that the D which G trains against may lag behind; 0 with `reuse` false: players take turns."""
    reuse: bool = True
    """Train D on the images of G's turns instead of generating others."""
    ranks: dict[str, Count] = field(default_factory=dict)
    """Number of ranks of each player by name, G first: {g: 1, d: 1, fake_score: 2}; empty: half of them train
    G, the others D."""
    g_batch: Count | None = None
    """Images of G's turn over all its ranks; null: as many as D's."""
    cached: Fraction = 0.0
    """Share of D's fakes drawn from those of G's last 8 updates, of every class equally many."""
    predict: NotNegative = 0.0
    """Times D's last change that is added to its weights where G trains against an earlier D.

    1 is the prediction step of Yadav et al. 2018.
    """
    fall_back: Positive | None = 50.0
    """`staleness` becomes 0 if gradients exceed this many times their usual size; null: never."""
    state_dtype: Literal["exact", "bf16"] = "exact"
    """D's state: `exact`, or as differences in bfloat16, whose rounding errors do not accumulate."""
    fakes_dtype: Literal["exact", "bf16"] = "exact"
    """Images sent to D: `exact`, or rounded to bfloat16; labels and other tensors are exact."""
    placement: Literal["blocks", "paired"] = "blocks"
    """Ranks of each player: consecutive, or spread evenly, so that each host has ranks of all."""
    order: FilePath | None = None
    """Run folder whose recorded order of updates is repeated (`paragan replay`)."""

    @property
    def takes_turns(self) -> bool:
        """Whether the players take turns as in `synchronous`, instead of training at the same time."""
        return self.staleness == 0 and not self.reuse


_DEFAULTS = Options()
_SHARES_OF_G = (0.25, 1 / 3, 0.5)  # of the ranks, for the planner
_NOT_IN_TURNS = ("g_batch", "cached", "state_dtype", "fakes_dtype", "order")


class Scheme(ConcurrentScheme[ThreadStep | RankStep | TurnStep]):
    """Players on separate ranks, or in one process: G and D in two threads, players that take turns in one."""

    def __init__(self, options: Options = _DEFAULTS) -> None:
        super().__init__()
        self.options = options

    def roles(self, world: World, timeout_s: float) -> Roles:
        counts = self._counts(world.size)  # also in one process: wrong names of players are refused
        if world.size == 1:
            self._roles = colocated_roles(world, timeout_s)
        else:
            is_paired = self.options.placement == "paired"
            self._roles = split_roles(world, counts, timeout_s, is_paired, self.options.takes_turns)
        return self._roles

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        if num_ranks == 1:
            return super().assign(num_ranks)
        return ranks_by_side(self._counts(num_ranks), self.options.placement == "paired")

    def _counts(self, num_ranks: int) -> dict[Side, int]:
        """Return the number of ranks of each player. Raises `ConfigError` for another number of ranks."""
        if not self.options.ranks:
            num_g = max(1, num_ranks // 2)
            return {Side.G: num_g, Side.D: num_ranks - num_g}
        counts = {_side(name): count for name, count in self.options.ranks.items()}
        is_valid = next(iter(counts)) is Side.G and Side.D in counts and sum(counts.values()) == num_ranks
        if num_ranks > 1 and not is_valid:
            setting = ", ".join(f"{side.value}: {count}" for side, count in counts.items())
            raise ConfigError(
                f"scheme.ranks={{{setting}}} does not fit {num_ranks} ranks; give each player a number, g first, "
                f"whose sum is {num_ranks}"
            )
        return counts

    @property
    def is_repeatable(self) -> bool:
        return True  # in the recorded order, by the option `order`

    def follows_order(self, num_ranks: int) -> bool:
        return not self.options.takes_turns

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
    def has_threads(self) -> bool:
        return not self.options.takes_turns

    @property
    def exact_scheme(self) -> str | None:
        if self.options.takes_turns:
            return None
        return "shared_fakes" if self.options.reuse else "synchronous"

    def plan_settings(self, num_ranks: int) -> Mapping[str, Mapping[str, Any]]:
        if self.options.ranks:
            return {}
        counts = sorted({max(1, round(share * num_ranks)) for share in _SHARES_OF_G})
        return {f"{n} ranks of G": {"ranks": {"g": n, "d": num_ranks - n}} for n in counts if n < num_ranks}

    def start_note(self, num_ranks: int) -> str | None:
        if num_ranks > 1 or not self.options.takes_turns:
            return None
        return "ranks     one process: players update in turn; set devices and scheme.ranks"

    def simulate(self, timeline: Timeline) -> None:
        if self.options.takes_turns:
            super().simulate(timeline)
            return
        step = timeline.step
        shares = {"exact": 1.0, "bf16": 0.5}  # of the bytes in float32
        for _ in range(1 if self.options.reuse else timeline.d_updates):
            timeline.generate()
            timeline.send_fakes(step, shares[self.options.fakes_dtype])
        timeline.wait(Side.D, step)  # for the fakes of this step
        for _ in range(timeline.d_updates):
            timeline.load()
            timeline.update(Side.D)
        timeline.send_state(step + 1, shares[self.options.state_dtype])
        timeline.wait(Side.G, max(0, step + 1 - self.options.staleness))  # for the oldest state of D that it may use
        timeline.update(Side.G, has_fakes=self.options.reuse)

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        if self._roles is not None and self._roles.is_split and {*gan.slots} != {*self._roles.ranks}:
            with_ranks = ", ".join(side.value for side in self._roles.ranks)
            players = ", ".join(side.value for side in gan.slots)
            raise ConfigError(f"scheme.ranks has {with_ranks}, and the players are {players}; give ranks to each")
        super().refuse(gan, tensors)
        if not self.options.takes_turns:
            return
        for name in _NOT_IN_TURNS:
            if getattr(self.options, name) != getattr(_DEFAULTS, name):
                raise ConfigError(
                    f"scheme.{name} does not apply to players that take turns (scheme.staleness=0 with "
                    f"scheme.reuse=false); leave it out, or change one of these"
                )

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Those of players that take turns, on the same ranks or not, or that train at the same time."""
        is_split = self._roles is not None and self._roles.is_split
        # G's thread, or another rank, would read the state of balancers and augmentations at any moment
        capabilities = ALL - {Capability.GRID, Capability.BALANCER, Capability.AUGMENT_STATE}
        if self.options.takes_turns:
            return capabilities if is_split else ALL - {Capability.GRID}
        # only fakes, with their labels or named tensors, travel between the players
        capabilities -= {Capability.EXTRA_PLAYERS, Capability.PAIRS, Capability.REAL_IN_G_TURN, Capability.PAUSES}
        if self.options.g_batch is not None:
            # counted in batches of D, which G's turns lack
            capabilities -= {Capability.SCHEDULES, Capability.BATCH_INPUTS}
        # a message between ranks has a known size; torch compiles in one thread at a time
        return capabilities - ({Capability.RAGGED} if is_split else {Capability.COMPILE})

    @property
    def holder(self) -> Holder:
        g_batch = self.options.g_batch
        holder = super().holder
        return holder if g_batch is None else replace(holder, name=f"{holder.name} with scheme.g_batch={g_batch}")

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run one step in the open session, or in a new one."""
        roles = self._roles or colocated_roles(ALONE)
        if self.options.takes_turns and not roles.is_split:
            return synchronous.step(gan, batches)
        reals = list(islice(batches, gan.batches_per_step))
        return self._session_of(gan, lambda: self._make_session(gan, roles, reals[0])).step(reals)

    def _make_session(self, gan: GAN, roles: Roles, first: Batch) -> ThreadStep | RankStep | TurnStep:
        options = self.options
        if options.takes_turns:
            return TurnStep(gan, roles)
        check_capabilities(self.holder, game_needs(gan))  # before G waits for an update of D
        limits = StalenessLimit(options=options, k=gan.d.updates_per_step)
        buffer = Buffer(gan.prior.seed, options.cached)
        orders = {} if options.order is None else read_order(Path(options.order), roles, gan)
        if not roles.is_split:
            return ThreadStep(gan=gan, first=first, buffer=buffer, limits=limits, orders=orders)
        return RankStep(gan=gan, roles=roles, first=first, buffer=buffer, limits=limits, orders=orders)


def _side(name: str) -> Side:
    try:
        return Side(name)
    except ValueError:
        raise ConfigError(
            f"scheme.ranks: {name!r} is not the name of a player; use g, d and the names in players"
        ) from None
