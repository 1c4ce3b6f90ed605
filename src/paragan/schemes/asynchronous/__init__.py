"""Concurrent training of G and D, each against the other of up to S steps ago (ParaGAN).

With several ranks, some train G and the others D, each player on a group of ranks with half of the
memory and of the bytes; G's samples are sent to D's ranks, with the label or the tensors that D
reads next to them, D's state to G's. In one process they train in two threads. No player is ever
further ahead than the bounds: at S = A = 0 this is `synchronous`, or `shared_fakes` if `reuse` is
on. Sources: the ParaGAN poster and arXiv 2411.03999 ("asynchronous"); bounded staleness: Ho et al.
2013.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Count, FilePath, Fraction, Natural, NotNegative, Positive
from paragan.core.roles import Roles, colocated_roles, ranks_by_side, split_roles
from paragan.core.source import TensorSpec
from paragan.core.timeline import Timeline
from paragan.core.types import Batch, Report, Side
from paragan.game.buffer import Buffer, BufferOptions
from paragan.game.gan import GAN
from paragan.game.scheme import refuse_pauses
from paragan.game.state_buffers import refuse_state
from paragan.game.term_weights import schedule_texts
from paragan.schemes._concurrent import ConcurrentScheme
from paragan.schemes._lag import LagBound
from paragan.schemes._update_order import read_order
from paragan.schemes.asynchronous.rank_step import RankStep
from paragan.schemes.asynchronous.simulated_step import simulate
from paragan.schemes.asynchronous.thread_step import ThreadStep


@dataclass(frozen=True)
class Options:
    """Bounds of the lag between G and D, and the placement of both (docs/asynchronous.md)."""

    staleness: Natural = 1
    """Steps that the D which G trains against may lag behind."""
    age: Natural = 0
    """Steps that the fakes which D trains on may be old."""
    reuse: bool = True
    """Train D on the images of G's turns instead of generating others."""
    g_ranks: Count | None = None
    """Ranks that train G; null: half of them. The others train D."""
    g_batch: Count | None = None
    """Images of G's turn over all its ranks; null: as many as D's."""
    capacity: Count = 4096
    """Most fakes that are buffered on a rank of D."""
    max_age: Natural = 8
    """Steps after which a buffered fake is dropped."""
    cached: Fraction = 0.0
    """Share of D's fakes drawn from the buffer."""
    balance: bool = True
    """Whether the fakes of a batch have the labels of the real ones in equal numbers."""
    lag_lr: NotNegative = 0.0
    """c of a learning rate multiplied by 1 / (1 + c lag)."""
    predict: NotNegative = 0.0
    """Times D's last change that is added to its weights where G trains against an earlier D.

    1 is the prediction step of Yadav et al. 2018.
    """
    fall_back: Positive | None = 50.0
    """`staleness` becomes 0 if gradients exceed this many times their usual size; null: never."""
    refresh: Count = 1
    """Steps between two states of D that are sent to G, at most `staleness`, or 1."""
    state_dtype: Literal["exact", "bf16"] = "exact"
    """D's state: `exact`, or as differences in bfloat16, whose rounding errors do not accumulate."""
    fakes_dtype: Literal["exact", "bf16"] = "exact"
    """Images sent to D: `exact`, or rounded to bfloat16; labels and other tensors are exact."""
    placement: Literal["blocks", "paired"] = "blocks"
    """Ranks of G: the first ones, or spread evenly, so that each host has ranks of G and of D."""
    order: FilePath | None = None
    """Run folder whose recorded order of updates is repeated (`paragan replay`)."""


class Scheme(ConcurrentScheme[ThreadStep | RankStep]):
    """Concurrent training of G and D: in two threads of one process, or on separate ranks."""

    def __init__(self, options: Options = Options()) -> None:
        super().__init__()
        self.options = options
        self._limits(num_d_updates=1)  # refuses a refresh that would block

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Assign ranks to G and D. Collective: every rank must call this.

        Raises `ConfigError` if no rank is left for D.
        """
        num_g = self.options.g_ranks or max(1, world.size // 2)
        if world.size == 1:
            self._roles = colocated_roles(world, timeout_s)
        elif num_g < world.size:
            self._roles = split_roles(world, num_g, timeout_s, self.options.placement == "paired")
        else:
            problem = f"leaves no rank for D: the run has {world.size} ranks"
            raise ConfigError(f"scheme.g_ranks={num_g} {problem}; pass a smaller number")
        return self._roles

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        num_g = self.options.g_ranks or max(1, num_ranks // 2)
        if num_g >= num_ranks:
            return super().assign(num_ranks)
        return ranks_by_side(num_ranks, num_g, self.options.placement == "paired")

    def simulate(self, timeline: Timeline) -> None:
        options = self.options
        shares = {"exact": 1.0, "bf16": 0.5}  # of float32
        simulate(timeline, self._limits(timeline.d_updates), shares[options.state_dtype], shares[options.fakes_dtype])

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        """Raise `ConfigError` if a player needs more of the other than fakes and what belongs to them."""
        if "condition" in tensors and not gan.prior.reads_batches:
            raise ConfigError(
                "scheme asynchronous does not support paired data: only images and labels travel "
                "between G and D; use scheme shared_fakes"
            )
        if gan.g_needs_real:
            raise ConfigError(
                "scheme asynchronous does not support losses and penalties that need real images "
                "in G's turn; use scheme synchronous, or loss hinge"
            )
        refuse_pauses(gan, "asynchronous")
        if self.options.g_batch is not None and any(schedule_texts(gan.adversarial, gan.penalties)):
            raise ConfigError(
                f"scheme.g_batch={self.options.g_batch} does not support weights that change: their time is "
                "counted in batches of D; leave g_batch out"
            )
        if self.options.g_batch is not None and gan.prior.reads_batches:
            raise ConfigError(
                f"scheme.g_batch={self.options.g_batch} does not support networks on named tensors: G's turn uses the "
                "batch that D's uses; leave g_batch out"
            )
        ragged = [name for name in gan.prior.judged if name in tensors and -1 in tensors[name].shape]
        if ragged and self._roles is not None and self._roles.is_split:
            raise ConfigError(
                f"scheme asynchronous does not support {ragged[0]!r} of any length on several ranks: the size of a "
                "message must be known; pass a list of tensors and one bucket, or use scheme synchronous"
            )
        # G's thread would read the state at any moment
        refuse_state(gan, "asynchronous", all_penalties=False)

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run one step in the open session, or in a new one."""
        reals = list(islice(batches, gan.d.updates_per_step))
        return self._session_of(gan, lambda: self._make_session(gan, reals[0])).step(reals)

    def _make_session(self, gan: GAN, first: Batch) -> ThreadStep | RankStep:
        options = self.options
        refuse_pauses(gan, "asynchronous")  # before G waits for an update of D
        limits = self._limits(gan.d.updates_per_step)
        buffer_options = BufferOptions(options.capacity, options.max_age, options.cached, options.balance)
        buffer = Buffer(buffer_options, gan.prior.seed)
        roles = self._roles or colocated_roles(ALONE)
        path = options.order
        orders = {} if path is None else read_order(Path(path), roles, gan)
        if not roles.is_split:
            return ThreadStep(gan, first, buffer, limits, orders)
        return RankStep(gan, roles, first, buffer, limits, orders)

    def _limits(self, num_d_updates: int) -> LagBound:
        """Return the bounds of a session. Raises `ConfigError` for a refresh that would block G."""
        options = self.options
        return LagBound(
            options.staleness,
            options.age,
            num_d_updates,
            options.reuse,
            options.g_batch,
            options.lag_lr,
            options.fall_back,
            refresh=options.refresh,
            sends_differences=options.state_dtype == "bf16",
            rounds_fakes=options.fakes_dtype == "bf16",
            predict=options.predict,
        )
