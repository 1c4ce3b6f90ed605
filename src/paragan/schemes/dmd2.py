"""DMD2 (Yin et al. 2024, arXiv 2405.14867): k updates of D and the fake score on the same images, then one of G.

Any extra players train like the fake score. G generates once for each batch, without its graph;
`synchronous` generates for each player. What a player learns is in its terms (docs/how-to/networks/players.md).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from paragan.core.fakes import detached_fakes
from paragan.core.protocols import Turn
from paragan.core.types import Batch, Report, Side
from paragan.game.gan import GAN
from paragan.game.scheme import Timeline
from paragan.game.turn_context import seeded_layers


def step(gan: GAN, batches: Iterator[Batch]) -> Report:
    """Update all players but G `updates_per_step` times, on one batch and its images each, then G once."""
    updates = {}
    for number, real in enumerate(islice(batches, gan.batches_per_step)):
        players = gan.critics_of_batch(number)
        turns = _on_same_images(gan, {side: gan.turn(side, real) for side in players}, real)
        for side, player in players.items():
            updates[side] = player.update(turns[side], against=gan.g)
    updates[Side.G] = gan.g.update(gan.g_turn(real), against=gan.d)  # the last batch again
    return gan.report(real.rows.total, updates)


def simulate(timeline: Timeline) -> None:
    """Describe one step to a simulation: G generates once for each batch."""
    for sides in timeline.critics():
        timeline.load()
        timeline.generate()
        for side in sides:
            timeline.update(side, has_fakes=True)
    timeline.update(Side.G)


def _on_same_images(gan: GAN, turns: dict[Side, Turn], real: Batch) -> dict[Side, Turn]:
    """Return the turns with images of G that are generated once."""
    feed = gan.prior.feed("critics", real)
    first = replace(next(iter(turns.values())), feed=feed)
    generator = gan.g.network()
    with seeded_layers(first, real.rows.step, generator):
        fakes = detached_fakes(first, generator, parts=1)
    return {side: replace(turn, feed=replace(feed, fakes=fakes)) for side, turn in turns.items()}
