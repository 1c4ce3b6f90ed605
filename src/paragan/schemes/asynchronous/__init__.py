"""G and D play at the same time: each against the other as it was up to S steps ago (ParaGAN, section "asynchronous").

On several ranks some hold G and the others D, each player on a group of its own with half of the memory and of the
bytes; G's images travel to D's ranks, D's state to G's. In one process they play in two threads. Nobody is ever
further ahead than the bounds: at S = A = 0 this is `synchronous`, or `shared_fakes` where `reuse` is on. Sources: the
ParaGAN poster and arXiv 2411.03999; bounded staleness: Ho et al. 2013.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, FilePath, Fraction, Natural, NotNegative, Positive
from paragan.core.roles import Roles, colocated_roles, split_roles
from paragan.core.types import Batch, Report, take_batches
from paragan.game.buffer import Buffer, BufferOptions
from paragan.game.gan import GAN
from paragan.game.state_buffers import refuse_remembering
from paragan.schemes._lag import LagBound, LagRecord
from paragan.schemes.asynchronous import update_order
from paragan.schemes.asynchronous.linked import RankStep
from paragan.schemes.asynchronous.threads import ThreadStep


@dataclass(frozen=True)
class Options:
    """How far G and D may be apart, and what is bounded (docs/asynchronous.md)."""

    staleness: Natural = 1
    """Steps that the D which G trains against may lag behind."""
    age: Natural = 0
    """Steps that the fakes which D trains on may be old."""
    reuse: bool = True
    """Train D on the images of G's own turns instead of making others."""
    g_ranks: Count | None = None
    """Ranks that hold G; null: half of them. The others hold D."""
    g_batch: Count | None = None
    """Images of G's turn over all its ranks; null: as many as D's."""
    capacity: Count = 4096
    """Most fakes that wait on a rank of D."""
    max_age: Natural = 8
    """Steps after which a waiting fake is dropped."""
    cached: Fraction = 0.0
    """Share of D's fakes that is drawn from the waiting ones."""
    balance: bool = True
    """Whether the fakes of a batch have the labels of the real ones in equal numbers."""
    lag_lr: NotNegative = 0.0
    """c of a learning rate multiplied by 1 / (1 + c lag)."""
    fall_back: Positive | None = 50.0
    """`staleness` becomes 0 where gradients grow beyond this many times their usual size; null: never."""
    order: FilePath | None = None
    """A run folder whose record says what each update used, to repeat it (`paragan replay`)."""


class Scheme:
    def __init__(self, options: Options = Options()) -> None:
        self.options = options
        self._roles: Roles | None = None
        self._game: ThreadStep | RankStep | None = None
        self._closed = False

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Who sits where. Collective. `ConfigError` where a player would have no rank."""
        num_g = self.options.g_ranks or max(1, world.size // 2)
        if world.size == 1:
            self._roles = colocated_roles(world, timeout_s)
        elif num_g < world.size:
            self._roles = split_roles(world, num_g, timeout_s)
        else:
            raise ConfigError(
                f"scheme.g_ranks: found {num_g} of {world.size} ranks, expected at least one left for D; give fewer"
            )
        return self._roles

    def refuse(self, gan: GAN, has_pairs: bool) -> None:
        """`ConfigError` for a game whose players need more of one another than images and labels."""
        if has_pairs:
            raise ConfigError(
                "scheme: asynchronous sends images and labels, not what they were made from, found data of pairs; "
                "use shared_fakes"
            )
        if gan.g_needs_real:
            raise ConfigError(
                "scheme: asynchronous has no real images where G sits, found a loss or penalty that shows G's turn "
                "some; use synchronous, or hinge"
            )
        refuse_remembering(gan, "scheme.asynchronous", all_of_it=False)  # G's thread would read it at any moment

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        reals = list(take_batches(batches, gan.d.updates_per_step))
        if self._game is None or self._closed or self._game.gan is not gan:
            self._game, self._closed = self._begun(gan, reals[0]), False
        return self._game.step(reals)

    def quiesce(self) -> None:
        """Both players have made the same steps, and nothing that they sent is under way."""
        if self._game is not None and not self._closed:
            self._game.quiesce()

    def close(self) -> None:
        """The links end; all ranks come here."""
        if self._game is not None and not self._closed:
            self._game.close()
            self._closed = True

    @property
    def lag_records(self) -> dict[str, LagRecord]:
        """By side, of the players here: lags, waits, versions used."""
        return {} if self._game is None else self._game.lag_records

    def describe(self) -> dict[str, dict[str, Any]]:
        """The same as JSON has it, since the last time."""
        return {side: told.drain() for side, told in self.lag_records.items()}

    def _begun(self, gan: GAN, first: Batch) -> ThreadStep | RankStep:
        chosen = self.options
        pace = LagBound(
            chosen.staleness,
            chosen.age,
            gan.d.updates_per_step,
            chosen.reuse,
            chosen.g_batch,
            chosen.lag_lr,
            chosen.fall_back,
        )
        kept = BufferOptions(chosen.capacity, chosen.max_age, chosen.cached, chosen.balance)
        buffer = Buffer(kept, gan.prior.seed)
        roles = self._roles or colocated_roles(ALONE)
        orders = {} if chosen.order is None else update_order.read(Path(chosen.order), roles, gan)
        if not roles.is_split:
            return ThreadStep(gan, first, buffer, pace, orders)
        return RankStep(gan, roles, first, buffer, pace, orders)
