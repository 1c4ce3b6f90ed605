"""Base of the schemes with players on ranks of their own: which ranks have which player."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles, colocated_roles, ranks_by_side, split_roles
from paragan.core.source import TensorSpec
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.schemes.base.concurrent import ConcurrentScheme, SessionType

if TYPE_CHECKING:
    from paragan.schemes.asynchronous import Options

_SHARES_OF_G = (0.25, 1 / 3, 0.5)  # of the ranks, for the planner


class PlayersOnRanks(ConcurrentScheme[SessionType]):
    """Scheme in which every rank has one player; a run of one process has them all on its rank."""

    name = "asynchronous"
    is_repeatable = True  # in turns always; at the same time in the recorded order, by the option `order`
    sends_states = False
    """Whether the ranks of each player hold the states of all others; otherwise G's ranks that of D."""

    def __init__(self, options: "Options") -> None:
        super().__init__()
        self.options = options

    @property
    def is_split(self) -> bool:
        """Whether the players are on separate ranks."""
        return self._roles is not None and self._roles.is_split

    def roles(self, world: World, timeout_s: float) -> Roles:
        counts = self._counts(world.size)  # also in one process: wrong names of players are refused
        if world.size == 1:
            self._roles = colocated_roles(world, timeout_s)
        else:
            self._roles = split_roles(world, counts, timeout_s, self._is_paired, self.sends_states)
        return self._roles

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        if num_ranks == 1:
            return super().assign(num_ranks)
        return ranks_by_side(self._counts(num_ranks), self._is_paired)

    @property
    def _is_paired(self) -> bool:
        return self.options.placement == "paired"

    def _counts(self, num_ranks: int) -> dict[Side, int]:
        """Return the number of ranks of each player. Raises `ConfigError` for another number of ranks."""
        if not self.options.ranks:
            num_g = max(1, num_ranks // 2)
            return {Side.G: num_g, Side.D: num_ranks - num_g}
        counts = {_side(name): count for name, count in self.options.ranks.items()}
        is_valid = next(iter(counts)) is Side.G and Side.D in counts and sum(counts.values()) == num_ranks
        if num_ranks > 1 and not is_valid:
            setting = ", ".join(f"{side.value}: {count}" for side, count in counts.items())
            raise ConfigError(
                f"scheme.ranks={{{setting}}} does not fit {num_ranks} ranks; give each player a number, g first, "
                f"whose sum is {num_ranks}"
            )
        return counts

    def plan_settings(self, num_ranks: int) -> Mapping[str, Mapping[str, Any]]:
        if self.options.ranks:
            return {}
        counts = sorted({max(1, round(share * num_ranks)) for share in _SHARES_OF_G})
        return {f"{n} ranks of G": {"ranks": {"g": n, "d": num_ranks - n}} for n in counts if n < num_ranks}

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        if self._roles is not None and self._roles.is_split and {*gan.slots} != {*self._roles.ranks}:
            with_ranks = ", ".join(side.value for side in self._roles.ranks)
            players = ", ".join(side.value for side in gan.slots)
            raise ConfigError(f"scheme.ranks has {with_ranks}, and the players are {players}; give ranks to each")
        super().refuse(gan, tensors)


def _side(name: str) -> Side:
    try:
        return Side(name)
    except ValueError:
        raise ConfigError(
            f"scheme.ranks: {name!r} is not the name of a player; use g, d and the names in players"
        ) from None
