"""Rank 0 holds both players and applies the workers' gradients ("Downpour", Dean et al. 2012).

A worker runs the turns of D and G on its rows of the batch, with copies of both networks, and sends
the gradients. It is never more than S steps ahead of the slowest worker, nor uses weights that lack
more than S steps of any worker (Ho et al. 2013, "stale synchronous parallel"). At S = 0 the server
waits for all workers and steps once with the sum of their gradients: `synchronous` on the whole
batch. A process without other ranks is also `synchronous`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paragan.core.capabilities import ALL, Capability
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.option_types import Natural
from paragan.core.roles import Roles, colocated_roles, server_roles
from paragan.core.source import TensorSpec
from paragan.core.types import Batch, Report, Side
from paragan.extensions.parameter_server.server import Server
from paragan.extensions.parameter_server.worker import GradientWorker
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.schemes import synchronous
from paragan.schemes.base.concurrent import ConcurrentScheme

# fields of `Policy` that a worker, which computes gradients, or the server, which steps, honours
HONOURED = {"kind", "lr", "arguments", "schedule", "max_norm", "micro_batches", "updates_per_step", "groups"}


@dataclass(frozen=True)
class Options:
    """Limit on how far workers may be ahead of one another."""

    staleness: Natural = 1
    """Steps that a worker may be ahead of the slowest, and that its weights may be old.

    0: one update per turn, with the gradients of all workers. 1 or more: one update per worker,
    each on its share of the batch; learning rate schedules count these.
    """


class Scheme(ConcurrentScheme[Server | GradientWorker]):
    """Scheme in which rank 0 holds both players, and the other ranks compute gradients.

    Equals `synchronous` in a process without other ranks.
    """

    def __init__(self, options: Options = Options()) -> None:
        super().__init__()
        self.options = options

    def roles(self, world: World, timeout_s: float) -> Roles:
        """Make rank 0 the server and the others workers. Collective: every rank must call this."""
        make_roles = colocated_roles if world.size == 1 else server_roles
        self._roles = make_roles(world, timeout_s)
        return self._roles

    def assign(self, num_ranks: int) -> Mapping[Side, Sequence[int]]:
        """Return the workers: all ranks but the server."""
        return {side: range(min(1, num_ranks - 1), num_ranks) for side in Side}

    @property
    def is_repeatable(self) -> bool:
        return self.options.staleness == 0

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """With a server those of updates that need only the sum of gradients."""
        capabilities = ALL - {Capability.GRID, Capability.EXTRA_PLAYERS, Capability.ROLLBACK, Capability.FORECAST}
        if not self._has_server:
            return capabilities
        capabilities -= {Capability.PAUSES, Capability.LOSS_SCALE, Capability.BALANCER}
        capabilities -= {Capability.TERM_STATE, Capability.AUGMENT_STATE}
        if self._roles is not None and self._roles.world.size > 2:  # several workers: each has a part of the batch
            capabilities -= {Capability.COUPLED}
        return capabilities

    def refuse(self, gan: GAN, tensors: Mapping[str, TensorSpec]) -> None:
        """Raise `ConfigError` for a game, or a field of a policy, that worker and server do not honour."""
        super().refuse(gan, tensors)
        for player in (gan.g, gan.d) if self._has_server else ():
            assert isinstance(player, Player)
            for name, value in player.policy.non_defaults.items():
                if name not in HONOURED:
                    raise ConfigError(
                        f"scheme {self.name} does not support {player.side.value}.{name}={value!r}; "
                        "leave it out, or use scheme synchronous"
                    )

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report:
        """Run one step in the open session, or in a new one."""
        if not self._has_server:
            return synchronous.step(gan, batches)
        return self._session_of(gan, lambda: self._make_session(gan)).step(batches)

    @property
    def _has_server(self) -> bool:
        return self._roles is not None and self._roles.has_server

    def _make_session(self, gan: GAN) -> Server | GradientWorker:
        assert self._roles is not None
        session = Server if self._roles.sides else GradientWorker  # players are on the server alone
        return session(gan, self._roles, self.options.staleness)
