"""Opponents drawn anew for every batch from the neighbourhood, as the algorithm of Lipizzaner's papers has it."""

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
    """Fulfils `core.seams.Seat`: its turns are the player's; as an opponent it is whoever is drawn of `candidates`."""

    player: Player
    candidates: Sequence[Network] = ()
    _order: list[int] = field(default_factory=list)
    _met: int = 0

    def draw(self, candidates: Sequence[Network], num: int, seed: int, cell: int, generation: int) -> None:
        """For the next `num` turns of the other player, and over again."""
        place = rng.generator(seed, "rival", cell, generation, self.player.side.value)
        self.candidates, self._met = candidates, 0
        self._order = torch.randint(len(candidates), (num,), generator=place).tolist()

    @property
    def version(self) -> int:
        return self.player.version

    @property
    def updates_per_step(self) -> int:
        return self.player.updates_per_step

    def network(self) -> Network:
        number = self._order[self._met % len(self._order)]
        self._met += 1
        return self.candidates[number]

    def update(self, turn: Turn, against: Opponent) -> Update:
        return self.player.update(turn, against)

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        return self.player.generate_fakes(turn)
