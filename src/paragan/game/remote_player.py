"""The stand-in for a player of other ranks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.protocols import Network, Opponent, Turn
from paragan.core.types import Side, Update
from paragan.game.policy import Policy
from paragan.game.snapshot import Snapshot


@dataclass
class RemotePlayer:
    """A `PlayerSlot` for a player of other ranks.

    snapshot: its newest state; None if only its images arrive.
    """

    side: Side
    policy: Policy
    snapshot: Snapshot | None = None

    @property
    def version(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.version

    @property
    def updates_per_step(self) -> int:
        return self.policy.updates_per_step

    def network(self) -> Network:
        assert self.snapshot is not None, f"{self.side.value} is on other ranks, and its state is not sent here"
        return self.snapshot.network()

    def update(self, turn: Turn, against: Opponent) -> Update:
        raise AssertionError(f"{self.side.value} is on other ranks, which run its turns")

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        raise AssertionError(f"{self.side.value} is on other ranks, which generate its images")
