"""Opponents drawn from the neighbourhood for every batch, as in the Lipizzaner papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.protocols import Network, Opponent, Turn
from paragan.core.types import Update
from paragan.game.player import Player


@dataclass
class RandomOpponent:
    """`core.protocols.PlayerSlot` that updates its player but plays as a random candidate."""

    player: Player
    candidates: Sequence[Network] = ()
    _order: list[int] = field(default_factory=list)
    _num_drawn: int = 0

    def draw(self, candidates: Sequence[Network], num: int, seed: int, cell: int, generation: int) -> None:
        """Draw candidates for the next `num` turns of the other player; longer use repeats them."""
        generator = rng.generator(seed, "rival", cell, generation, self.player.side.value)
        self.candidates = candidates
        self._num_drawn = 0
        self._order = torch.randint(len(candidates), (num,), generator=generator).tolist()

    @property
    def version(self) -> int:
        return self.player.version

    @property
    def updates_per_step(self) -> int:
        return self.player.updates_per_step

    def network(self) -> Network:
        """Return the next drawn candidate."""
        number = self._order[self._num_drawn % len(self._order)]
        self._num_drawn += 1
        return self.candidates[number]

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Update the player, never a candidate."""
        return self.player.update(turn, against)

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        return self.player.generate_fakes(turn)
