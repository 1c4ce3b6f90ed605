"""Bound on the steps between the workers of a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paragan.core.types import Side
from paragan.game.gan import GAN


@dataclass(frozen=True)
class StalenessBound:
    """Bound on the steps between workers. staleness: S, in steps. per_step: turns of each player.

    A worker waits for weights that lack at most S steps of any worker, its own steps counted, so no worker is further
    ahead of another.
    """

    staleness: int
    per_step: Mapping[Side, int]

    @classmethod
    def of(cls, gan: GAN, staleness: int) -> StalenessBound:
        """Return the bound of a game."""
        return cls(staleness, {Side.G: 1, Side.D: gan.d.updates_per_step})

    @property
    def turns(self) -> list[Side]:
        """Turns of a step, in order."""
        return [Side.D] * self.per_step[Side.D] + [Side.G]

    @property
    def max_in_flight(self) -> int:
        """Messages to or from a worker that may be unread or unanswered."""
        return (self.staleness + 1) * len(self.turns) + 2  # the weights of G and D, sent before any turn

    def to_steps(self, side: Side, turns: int) -> int:
        """Convert a lag in turns to steps, rounded up: a turn of a step not yet complete is a lag too."""
        return -(-turns // self.per_step[side])
