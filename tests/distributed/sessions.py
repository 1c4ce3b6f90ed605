"""Training in several sessions, each resumed from the checkpoint of the one before."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import World
from paragan.core.types import Batch
from paragan.game.gan import GAN
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous


def train_in_sessions(
    world: World, folder: str, ends: Sequence[int], build: Callable[[], GAN], batches: Callable[[int], Iterator[Batch]]
) -> GAN:
    """Train up to each of these steps, where the game is saved and built anew; return the last game.

    batches: those from a step on.
    """
    for begin, end in zip((0, *ends), ends, strict=False):
        gan = build()
        players = {player.side.value: player for player in (gan.g, gan.d)}
        if begin:
            found = CheckpointWriter(folder=Path(folder), world=world).newest()
            for side, player in players.items():
                restore(player, found.groups[side], found.values[side])
        stream = batches(begin)
        for _ in range(begin, end):
            synchronous.step(gan, stream)
        states = {side: state_of(player) for side, player in players.items()}
        groups = {side: pieces for side, (pieces, _) in states.items()}
        values = {side: counts for side, (_, counts) in states.items()}
        CheckpointWriter(folder=Path(folder), world=world).save(end, groups, values)
    return gan
