"""Several discriminators on ranks: a publication's game, stopped half-way, and that of ranks with one player each."""

from functools import cache
from pathlib import Path

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import ALONE, World
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.game.policy import Policy
from paragan.game.snapshot import RemotePlayer, Snapshot
from paragan.game.state import restore, state_of
from paragan.loading.loader import BatchRows
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from paragan.schemes.asynchronous import Options, Scheme
from tests.distributed.cases_laws import strategy
from tests.laws.small_gan import distance
from tests.laws.vocoder_gan import BATCH, STEPS, batches, game, network, plain, player, total

SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme()}
SAVED = 2
UNEVEN = ((0, 3), (3, 5))  # first row and rows of each rank


def publication(world: World, folder: str, name: str, strategies: str, scheme: str, parts: int) -> list[float]:
    """The largest differences of a weight, and of a loss, from the plain loop; saved and built anew on the way."""
    nets, losses = plain(name, is_shared=scheme == "shared_fakes")
    share = UNEVEN[world.rank]
    writer = CheckpointWriter(folder=Path(folder), world=world)

    def built():
        return game(name, *(player(side, name, strategy(strategies), world, parts) for side in Side))

    gan = built()
    stream = batches(*share)
    reports = [SCHEMES[scheme].step(gan, stream).read(world.sum) for _ in range(SAVED)]
    states = {seat.side.value: state_of(seat) for seat in (gan.g, gan.d)}
    groups = {side: pieces for side, (pieces, _) in states.items()}
    writer.save(SAVED, groups, {side: counts for side, (_, counts) in states.items()})
    gan = built()
    found = CheckpointWriter(folder=Path(folder), world=world).newest()
    for seat in (gan.g, gan.d):
        restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
    stream = batches(*share, start=SAVED)
    reports += [SCHEMES[scheme].step(gan, stream).read(world.sum) for _ in range(STEPS - SAVED)]
    weights = [distance(seat.strategy.weights(seat.net), dict(nets[seat.side].state_dict())) for seat in (gan.g, gan.d)]
    pairs = zip(reports, losses, strict=True)
    return [max(weights), max(abs(total(r, "d") / x["d"] - 1) + abs(total(r, "g") / x["g"] - 1) for r, x in pairs)]


@cache
def alone(reuse: bool):
    """One process, everything in turn; G has no real samples, as in asynchronous training."""
    gan = game("vocos", *(player(side, "vocos", none.Strategy()) for side in Side), conditioned=False)
    stream = batches()
    order = SCHEMES["shared_fakes" if reuse else "synchronous"]
    reports = [order.step(gan, stream).read() for _ in range(STEPS)]
    return {"g": gan.g.net.state_dict(), "d": gan.d.net.state_dict()}, reports


def no_delay(world: World, reuse: bool) -> list:
    """Which player is here, the largest difference from the plain game, the discriminators in the record."""
    scheme = Scheme(Options(staleness=0, reuse=reuse))
    roles: Roles = scheme.roles(world, 30.0)

    def seat(side: Side):
        if side in roles.sides:
            return player(side, "vocos", none.Strategy(), ALONE)
        return RemotePlayer(side, Policy(), Snapshot(network(side)) if side is Side.D or not reuse else None)

    gan = game("vocos", *map(seat, Side), conditioned=False)
    share = roles.batch_world.share(BATCH)
    stream = batches(*share) if Side.D in roles.sides else BatchRows(None, BATCH, share)
    reports = [scheme.step(gan, stream).read(roles.batch_world.sum) for _ in range(STEPS)]
    scheme.quiesce()
    (side,) = roles.sides
    nets, expected = alone(reuse)
    mine = getattr(gan, side.value)
    difference = distance(dict(mine.net.state_dict()), dict(nets[side.value]))
    words = max(abs(a[key] - b[key]) for a, b in zip(reports, expected, strict=True) for key in a)
    scheme.close()
    recorded = [name.rpartition("adversarial/")[2] for name in reports[0] if "adversarial/" in name]
    return [side.value, difference, words < 1e-5, recorded]
