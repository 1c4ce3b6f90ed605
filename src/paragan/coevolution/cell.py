"""One place on the grid: a game of its own, and the two genomes that its neighbours read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paragan.coevolution.cell_state import CellState, Centre
from paragan.coevolution.genome import Genome, Traits
from paragan.coevolution.opponents import RandomOpponent
from paragan.core.types import Report, Side
from paragan.game.gan import GAN, Loss
from paragan.game.player import Player
from paragan.game.scheme import Batches, Scheme


@dataclass
class Cell:
    """losses: among which its own is drawn; none: it keeps the game's. weights: of its neighbours' generators.

    fitness, score: of its genomes and of its mixture, as the last generation found them.
    """

    number: int
    gan: GAN
    scheme: Scheme
    batches: Batches
    losses: Sequence[Loss] = ()
    centre: Centre = field(init=False)
    weights: tuple[float, ...] = ()
    fitness: dict[Side, float] = field(default_factory=dict)
    score: float | None = None
    loss: int = 0  # number of the one drawn last
    _held: dict[Side, Genome] = field(default_factory=dict)  # whom the players are, if they have not moved since
    _lines: dict[Side, int] = field(default_factory=dict)  # of which cell whoever is trained descends

    def __post_init__(self) -> None:
        rates = {side: player.policy.lr for side, player in self.players.items()}
        self.centre = {side: self._taken(side, Traits(rates[side], 0, self.number, 0)) for side in Side}

    @property
    def players(self) -> dict[Side, Player]:
        return players_of(self.gan)

    @property
    def seats(self) -> dict[Side, RandomOpponent]:
        """Where opponents are drawn; none where the two play against one another."""
        seats = {Side.G: self.gan.g, Side.D: self.gan.d}
        return {side: seat for side, seat in seats.items() if isinstance(seat, RandomOpponent)}

    def clone(self, side: Side, genome: Genome, lr: float) -> None:
        """What is trained next: a clone of somebody in the neighbourhood, at this learning rate."""
        player = self.players[side]
        if self._held.get(side) is not genome:
            genome.load_into(player)
        player.set_lr_base(lr)
        self._held.pop(side, None)
        self._lines[side] = genome.traits.cell

    def train_step(self, loss: int) -> Report:
        """One step of the game, for this one of its losses."""
        if self.losses:
            self.loss, self.gan.loss = loss, self.losses[loss]
        return self.scheme.step(self.gan, self.batches)

    def snapshot(self, generation: int) -> Centre:
        """The players as genomes, after a generation."""
        self.scheme.quiesce()
        traits = Traits(0.0, self.loss, self.number, generation)
        lines = {side: self._lines.get(side, self.number) for side in Side}
        rates = {side: player.policy.lr for side, player in self.players.items()}
        return {side: self._taken(side, replace(traits, lr=rates[side], cell=lines[side])) for side in Side}

    def state(self) -> CellState:
        """At the edge of a generation. Reads counters from the device."""
        players, clock = self.players, self.gan.clock
        return CellState(
            self.number,
            self.centre,
            self.weights,
            {side: value for side, value in self.fitness.items() if math.isfinite(value)},
            self.score,
            self.loss,
            self.batches.position,
            (clock.step, clock.images),
            {side: (player.version, player.images, int(player.updates)) for side, player in players.items()},
        )

    @property
    def record(self) -> dict[str, Any]:
        """For the record."""
        return self.state().record

    def restore(self, there: CellState) -> None:
        """Go on from there. The players are nobody then: the next clone is made from its genome."""
        self.centre, self.weights, self.loss = there.centre, there.weights, there.loss
        self.fitness, self.score = dict(there.fitness), there.score
        self.batches.position = there.position
        self.gan.clock.step, self.gan.clock.images = there.clock
        for side, player in self.players.items():
            player.version, player.images, updates = there.counters[side]
            player.updates.fill_(updates)
        self._held.clear()

    def _taken(self, side: Side, traits: Traits) -> Genome:
        genome = self._held[side] = Genome.from_player(self.players[side], traits)
        return genome


def players_of(gan: GAN) -> dict[Side, Player]:
    """Both, behind whatever seats they have."""
    seats = {Side.G: gan.g, Side.D: gan.d}
    found = {side: seat.player if isinstance(seat, RandomOpponent) else seat for side, seat in seats.items()}
    return {side: player for side, player in found.items() if isinstance(player, Player)}
