"""Protocol of simulated time, to which a scheme describes its step."""

from __future__ import annotations

from typing import Protocol

from paragan.core.types import Side


class Timeline(Protocol):
    """Clocks of all ranks of a simulated run.

    step: number of the step, from 0. Calls move the clocks of the ranks of a side.
    """

    step: int

    @property
    def d_updates(self) -> int:
        """Updates of D in a step."""

    def load(self) -> None:
        """Read one batch of real samples on the ranks of D."""

    def generate(self) -> None:
        """Generate one batch on the ranks of G, without its graph."""

    def update(self, side: Side, has_fakes: bool = False) -> None:
        """Run one update of a player and its exchanges. has_fakes: G's images exist already."""

    def send_fakes(self, version: int, share: float = 1.0) -> None:
        """Send G's images of a version to the ranks of D, as a share of their bytes; does not wait."""

    def send_state(self, version: int, share: float = 1.0) -> None:
        """Send D's state to every rank of G, as a share of its bytes; does not wait."""

    def wait(self, receiver: Side, version: int) -> None:
        """Let each rank of a side wait for the message of that version, if there is one."""
