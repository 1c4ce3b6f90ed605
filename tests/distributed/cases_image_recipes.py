"""The small networks of `translate` and `superres` on the rows of this rank."""

from __future__ import annotations

from pathlib import Path

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import World
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.laws.image_recipes import BATCH, STEPS, batches, game, plain, player
from tests.laws.small_gan import distance


def plain_loop(world: World, folder: str, recipe: str, strategies: str, parts: int) -> float:
    """The largest difference of a weight from the plain loop; saved and built anew at steps 9 and 17."""
    for begin, end in ((0, 9), (9, 17), (17, STEPS)):
        gan = game(recipe, *(player(recipe, side, strategy(strategies), world, parts) for side in Side))
        if begin:
            found = CheckpointWriter(Path(folder), world=world).newest()
            for seat in (gan.g, gan.d):
                restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
        stream = batches(recipe, *world.share(BATCH), start=begin)
        for _ in range(begin, end):
            synchronous.step(gan, stream)
        states = {seat.side.value: state_of(seat) for seat in (gan.g, gan.d)}
        groups = {side: pieces for side, (pieces, _) in states.items()}
        values = {side: counts for side, (_, counts) in states.items()}
        CheckpointWriter(Path(folder), world=world).save(end, groups, values)
    nets = plain(recipe)
    return max(distance(s.strategy.weights(s.net), dict(nets[s.side].state_dict())) for s in (gan.g, gan.d))
