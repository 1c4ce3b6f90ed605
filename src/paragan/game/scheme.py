"""Base class of schemes: the order of the players' turns in one training step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paragan.core.capabilities import ALL, Capability, Holder, check_capabilities
from paragan.core.dist import World
from paragan.core.roles import Roles, colocated_roles
from paragan.core.source import TensorSpec
from paragan.core.types import Batch, Report, Side
from paragan.game.gan import GAN
from paragan.game.needs import game_needs


class Timeline(Protocol):
    """Clocks of all ranks of a simulated run, to which a scheme describes its step.

    step: number of the step, from 0. Calls move the clocks of the ranks of a side.
    """

    step: int

    @property
    def d_updates(self) -> int:
        """Updates of D in a step."""

    def critics(self) -> Sequence[Sequence[Side]]:
        """Return, for each batch of a step, which of D and the extra players are updated on it, in order."""

    def load(self) -> None:
        """Read one batch of real samples on the ranks of D."""

    def generate(self) -> None:
        """Generate one batch on the ranks of G, without its graph."""

    def update(self, side: Side, has_fakes: bool = False) -> None:
        """Run one update of a player and its exchanges. has_fakes: G's images exist already; for D they always do."""

    def send_fakes(self, version: int, share: float = 1.0) -> None:
        """Send G's images of a version to the ranks of D, as a share of their bytes; does not wait."""

    def send_state(self, version: int, share: float = 1.0) -> None:
        """Send D's state to every rank of G, as a share of its bytes; does not wait."""

    def wait(self, receiver: Side, version: int) -> None:
        """Let each rank of a side wait for the message of that version, if there is one."""


class Scheme(ABC):
    """Order of turns in one step; defaults suit players in turns, on the same ranks.

    Planning, checks, replay and verification read only this class, and know no scheme by name.
    A grid takes a scheme that has `Capability.GRID`.
    """

    is_concurrent: bool = False
    """Whether the players train at the same time, in threads or on separate ranks."""
    capabilities: frozenset[Capability] = ALL - {Capability.GRID, Capability.EXTRA_PLAYERS}
    """What settings and loss terms may need that this scheme has."""
    shares_fakes: bool = False
    """Whether D's last update trains on the images of G's turn."""

    @abstractmethod
    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Update both players and advance the clock. batches: one for each update of D."""

    def quiesce(self) -> None:  # noqa: B027  # optional
        """Finish all work in progress, so that the game can be saved or scored. Collective."""

    def close(self) -> None:  # noqa: B027  # optional
        """Release links and threads after the last step. Collective."""

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Return which ranks have which player, before players are built. Collective."""
        return colocated_roles(world, timeout_s)

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        """Return the ranks, of `num_ranks`, that train each side; for forecasts."""
        return {side: range(num_ranks) for side in Side}

    def simulate(self, timeline: Timeline) -> None:
        """Describe one step to a simulation, turn by turn; the default is that of `synchronous`."""
        for sides in timeline.critics():
            timeline.load()
            for side in sides:
                if not self.updates(side, timeline.step + 1):
                    continue
                if side is Side.D:
                    timeline.generate()
                timeline.update(side)
        timeline.update(Side.G, has_fakes=self.shares_fakes)

    @property
    def is_repeatable(self) -> bool:
        """Whether a replay of recorded steps ends at the same numbers; not if players train at the same time."""
        return not self.is_concurrent

    def follows_order(self, num_ranks: int) -> bool:
        """Return whether the order of updates depends on the speed of ranks or threads.

        A replay then gives the recorded order to the scheme, as its option `order`.
        """
        return False

    def can_end_at(
        self, num_steps: int, used: Mapping[Side, Sequence[Sequence[int]]], d_updates: int, d_version: int
    ) -> bool:
        """Return whether a replay can end after the first `num_steps` steps of a session.

        It cannot if an update in them used a state or fakes that the other player made in a later step: the
        replay would wait for these. used: for each update what it used, by side and rank. d_updates: updates
        of D in a step. d_version: D's version at the start of the session.
        """
        return True

    def updates(self, side: Side, step: int) -> bool:
        """Return whether a player is updated in a step, numbered from 1."""
        return True

    @property
    def has_threads(self) -> bool:
        """Whether players that share a process train in threads of it, in which collectives would have no order."""
        return False

    @property
    def exact_scheme(self) -> str | None:
        """Name of the scheme that this one equals without delays, which `verify` runs instead; None: itself."""
        return None

    def plan_settings(self, num_ranks: int) -> Mapping[str, Mapping[str, Any]]:
        """Return options that may be faster on this number of ranks, by a short name; the planner compares them."""
        return {}

    def start_note(self, num_ranks: int) -> str | None:
        """Return a line to print at the start of a run on this number of ranks; None if nothing is surprising."""
        return None

    @property
    def name(self) -> str:
        """Name of the scheme: that of its module."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def holder(self) -> Holder:
        """Name and capabilities of the scheme, for messages about what it lacks."""
        return Holder(f"scheme {self.name}", self.capabilities, "use scheme synchronous")

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        """Raise `ConfigError` for a game that needs what this scheme does not have. tensors: of a sample."""
        check_capabilities(self.holder, game_needs(gan, tensors))

    def describe(self) -> dict[str, dict[str, Any]]:
        """Return delays since the last call by side, for the record; empty if no player waits."""
        return {}


@dataclass(frozen=True)
class FunctionScheme(Scheme):
    """A scheme that is one function, `step(gan, batches)`, such as `schemes/synchronous.py`."""

    function: Callable[[GAN, Iterator[Batch]], Report]
    capabilities: frozenset[Capability] = ALL - {Capability.GRID}  # a function may train all of `gan.critics`
    simulated_by: Callable[[Timeline], None] | None = None

    @property
    def name(self) -> str:
        return self.function.__module__.rpartition(".")[2]

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        return self.function(gan, batches)

    def simulate(self, timeline: Timeline) -> None:
        (self.simulated_by or super().simulate)(timeline)
