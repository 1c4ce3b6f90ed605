"""Compiled networks on several ranks."""

from unittest.mock import patch

from paragan.core.dist import World
from paragan.core.types import Side
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.snapshot import RemotePlayer, Snapshot
from paragan.hardware import executors
from paragan.schemes import synchronous
from tests.distributed import cases_asynchronous
from tests.distributed.cases_laws import alone, strategy
from tests.laws import small_gan
from tests.laws.matrix_gan import BATCH, STEPS, Switches, game, player, stream
from tests.laws.small_gan import distance, play


def compiled(world: World, name: str) -> float:
    """How far G and D, with R1 at every other update, end from one process that runs everything as written."""
    on = Switches()
    with patch.object(executors, "BACKEND", "aot_eager"):
        calling = Calling(compiler=executors.call_compiler("compile", world.device))
        seats = [_again(player(side, on, strategy(name), world), calling) for side in (Side.G, Side.D)]
        play(game(on, *seats), synchronous, stream(on, *world.share(BATCH)), STEPS, world.sum)
    weights = alone(on, "synchronous")[:2]
    return max(distance(seat.strategy.weights(seat.net), one) for seat, one in zip(seats, weights, strict=True))


def compiled_asynchronous(world: World) -> list:
    """Each player on a rank, and how far it ends from one process that runs everything as written."""
    with patch.object(executors, "BACKEND", "aot_eager"):
        calling = Calling(compiler=executors.call_compiler("compile", world.device))
        gan, scheme, stream = cases_asynchronous.begun(world, num_g=1, staleness=0)
        (side,) = scheme._roles.sides
        here = _again(getattr(gan, side.value), calling)
        remote = gan.d.snapshot if side is Side.G else None
        seen = gan.d if remote is None else RemotePlayer(Side.D, gan.d.policy, Snapshot(remote.net, calling))
        gan = small_gan.game(here, seen) if side is Side.G else small_gan.game(gan.g, here)
        for _ in range(cases_asynchronous.STEPS):
            scheme.step(gan, stream)
        scheme.close()
    networks = [here.training_network] if remote is None else [here.training_network, gan.d.snapshot.plain_network]
    num_compiled = sum(bool(network._run._programs) for network in networks)
    nets, _ = cases_asynchronous.alone(True, 1)
    return [side.value, small_gan.distance(here.strategy.weights(here.net), nets[side.value]), num_compiled]


def _again(seat: Player, calling: Calling) -> Player:
    return Player(
        side=seat.side, net=seat.net, strategy=seat.strategy, policy=seat.policy, calling=calling, ema=seat.ema
    )
