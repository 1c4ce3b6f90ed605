"""One rank holds both players and applies the gradients of all others as they come (Dean et al. 2012, "Downpour").

A worker plays D's turns and G's on rows of its own, with a copy of either network, and sends what it would have stepped
by. It is never more than S steps ahead of the slowest, nor plays on weights that lack more than S of anybody's steps
(Ho et al. 2013, "stale synchronous parallel"). At S = 0 the server waits for all workers and steps once by the sum of
their gradients: `synchronous` on the whole batch. Alone, a process is its own worker, and that is `synchronous`, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Natural
from paragan.core.roles import Roles, colocated_roles, server_roles
from paragan.core.types import Batch, Can, Report
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes import synchronous
from paragan.schemes._lag import LagRecord
from paragan.schemes.parameter_server.server import Server
from paragan.schemes.parameter_server.worker import Worker


@dataclass(frozen=True)
class Options:
    """How far workers may be apart."""

    staleness: Natural = 1
    """Steps that a worker may be ahead of the slowest, and that its weights may be old. 0: one update per turn,
    from the gradients of all workers. From 1 on: one update per worker, each on its share of the batch; learning
    rate schedules count those.
    """


class Scheme:
    def __init__(self, options: Options = Options()) -> None:
        self.options = options
        self._roles: Roles | None = None
        self._game: Server | Worker | None = None
        self._closed = False

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Rank 0 serves, the others work. Collective."""
        self._roles = colocated_roles(world, timeout_s) if world.size == 1 else server_roles(world, timeout_s)
        return self._roles

    def refuse(self, gan: GAN, has_pairs: bool) -> None:
        """`ConfigError` for players whose updates need more than gradients."""
        seats = [seat for seat in (gan.g, gan.d) if isinstance(seat, Player)]
        if self._is_served and any(seat.calling.dtype is torch.float16 for seat in seats):
            raise ConfigError(
                "scheme: parameter_server has no loss scale that all workers know, found precision fp16; use bf16"
            )
        comparing = [penalty.name for penalty in (*gan.g_penalties, *gan.d_penalties) if Can.COUPLED in penalty.needs]
        comparing += ["the loss"] * gan.loss.compares
        workers = self._roles.world.size - 1 if self._roles is not None and self._is_served else 1
        if workers > 1 and comparing:
            raise ConfigError(
                f"scheme: parameter_server deals a batch to {workers} workers, found {comparing[0]}, which compares "
                "all of its samples; use scheme synchronous"
            )

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        if not self._is_served:
            return synchronous.step(gan, batches)
        if self._game is None or self._closed or self._game.gan is not gan:
            self._game, self._closed = self._begun(gan), False
        return self._game.step(batches)

    def quiesce(self) -> None:
        """Every gradient has been applied, and every worker has been answered."""
        if self._game is not None and not self._closed:
            self._game.quiesce()

    def close(self) -> None:
        """The links end; all ranks come here."""
        if self._game is not None and not self._closed:
            self._game.close()
            self._closed = True

    @property
    def lag_records(self) -> Mapping[str, LagRecord]:
        """By side, of turns that were played here: how late their weights were, waits, versions used."""
        return {} if self._game is None else self._game.lag_records

    def describe(self) -> dict[str, dict[str, Any]]:
        """The same as JSON has it, since the last time."""
        return {side: told.drain() for side, told in self.lag_records.items()}

    @property
    def _is_served(self) -> bool:
        return self._roles is not None and self._roles.has_server

    def _begun(self, gan: GAN) -> Server | Worker:
        assert self._roles is not None
        return (Server if self._roles.sides else Worker)(gan, self._roles, self.options.staleness)
