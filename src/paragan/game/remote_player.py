"""Placeholder for a player of other ranks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from paragan.core.protocols import Network, Opponent, Turn
from paragan.core.types import Side, Update
from paragan.game.policy import Policy
from paragan.game.snapshot import Snapshot


@dataclass
class RemotePlayer:
    """A `PlayerSlot` for a player of other ranks. snapshot: newest state; None: only images."""

    side: Side
    policy: Policy
    snapshot: Snapshot | None = None

    @property
    def version(self) -> int:
        """Version of the newest state; 0 without one."""
        return 0 if self.snapshot is None else self.snapshot.version

    @property
    def updates_per_step(self) -> int:
        """Updates of the player per step."""
        return self.policy.updates_per_step

    @property
    def update_probability(self) -> float:
        """Probability of an update at each batch."""
        return self.policy.update_probability

    def network(self) -> Network:
        """Return the network of the newest state."""
        assert self.snapshot is not None, f"{self.side.value} is on other ranks, and its state is not sent here"
        return self.snapshot.network()

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Raise an error: other ranks run this player's turns."""
        raise AssertionError(f"{self.side.value} is on other ranks, which run its turns")

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        """Raise an error: other ranks generate this player's images."""
        raise AssertionError(f"{self.side.value} is on other ranks, which generate its images")
