"""Base class of schemes: the order of the players' turns in one training step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from paragan.core.dist import World
from paragan.core.protocols import Source
from paragan.core.roles import Roles, colocated_roles
from paragan.core.types import Batch, Report
from paragan.game.gan import GAN


class Batches(Protocol):
    """An endless stream whose whole state is its position."""

    position: int
    source: Source

    @property
    def wait_s(self) -> float: ...

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def close(self) -> None: ...  # ends threads; the next batch starts them again


class Scheme(ABC):
    """The order of turns in one step (`schemes/`).

    The defaults suit players that train in turns, on the same ranks.
    """

    is_concurrent: bool = False
    """Whether the players train at the same time, in threads or on ranks of their own."""
    needs_local_players: bool = False
    """Whether both players must be `Player` objects of this process, not stand-ins for them."""
    shares_fakes: bool = False
    """Whether D trains on the images of G's own turn, with their graph: a turn of G begins in D's.
    """

    @abstractmethod
    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Update both players and advance the clock.

        batches: the real images of D's updates, one batch for each.
        """

    def quiesce(self) -> None:  # noqa: B027  # optional
        """Finish all work in progress, so that the game can be saved or scored. Collective."""

    def close(self) -> None:  # noqa: B027  # optional
        """Release links and threads after the last step. Collective."""

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Return which ranks hold which player.

        Called once, before players are built. Collective.
        """
        return colocated_roles(world, timeout_s)

    def refuse(self, gan: GAN, has_pairs: bool) -> None:  # noqa: B027  # optional
        """Raise `ConfigError` for a game that this scheme cannot train.

        has_pairs: images come with conditions.
        """

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return delays for the record by side, JSON, since the last call; empty where players
        never wait.
        """
        return {}


@dataclass(frozen=True)
class FunctionScheme(Scheme):
    """A scheme that is one function, `step(gan, batches)`, such as `schemes/synchronous.py`."""

    function: Callable[[GAN, Iterator[Batch]], Report]

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        return self.function(gan, batches)
