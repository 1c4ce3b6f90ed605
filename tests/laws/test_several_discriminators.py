"""Four discriminators of unequal size are the formulas of HiFi-GAN, DAC and Vocos: plain loops in float64, 1e-12.

In one process; `tests/distributed/test_discriminators.py` has two ranks.
"""

import itertools

import pytest
import torch

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.parallel import none
from paragan.schemes import shared_fakes, synchronous
from tests.laws.small_gan import distance
from tests.laws.vocoder_gan import PAPERS, STEPS, batches, game, network, plain, player, total

TOLERANCE = 1e-12
SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme()}


def built(name, parts=1):
    return game(name, *(player(side, name, none.Strategy(), parts=parts) for side in Side))


def difference(gan, nets):
    pairs = ((gan.g.net, nets[Side.G]), (gan.d.net, nets[Side.D]))
    return max(distance(dict(mine.state_dict()), dict(other.state_dict())) for mine, other in pairs)


WAYS = [*itertools.product(PAPERS, SCHEMES, [1, 2]), ("relativistic", "synchronous", 1)]


@pytest.mark.parametrize(("name", "scheme", "parts"), WAYS)
def test_training_is_the_publications(name, scheme, parts):
    nets, losses = plain(name, is_shared=scheme == "shared_fakes")
    moved = distance(dict(nets[Side.D].state_dict()), dict(network(Side.D).state_dict()))
    gan = built(name, parts)
    stream = batches()
    for expected in losses:
        found = SCHEMES[scheme].step(gan, stream).read()
        assert {side: total(found, side) for side in "gd"} == pytest.approx(expected, rel=1e-5)  # float32
    assert difference(gan, nets) <= TOLERANCE and moved > 1e-2


@pytest.mark.parametrize("name", PAPERS)
def test_resumed_training_is_the_publications(name, tmp_path):
    nets, _ = plain(name)
    first = built(name)
    stream = batches()
    for _ in range(2):
        synchronous.step(first, stream)
    states = {seat.side.value: state_of(seat) for seat in (first.g, first.d)}
    groups = {side: pieces for side, (pieces, _) in states.items()}
    values = {side: counts for side, (_, counts) in states.items()}
    CheckpointWriter(folder=tmp_path).save(2, groups, values)
    gan = built(name)
    found = CheckpointWriter(folder=tmp_path).newest()
    for seat in (gan.g, gan.d):
        restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
    stream = batches(start=2)
    for _ in range(STEPS - 2):
        synchronous.step(gan, stream)
    assert difference(gan, nets) <= TOLERANCE


def test_concatenated_logits_are_another_game():
    """The largest of these discriminators has over three times the logits of the smallest."""
    outputs = network(Side.D)(next(batches()).tensors["audio"])
    sizes = [logits[0].numel() for group in ("mpd", "mrd") for logits, _ in outputs[group]]
    assert max(sizes) > 3 * min(sizes)
    concatenated = torch.cat([logits.flatten(1) for group in ("mpd", "mrd") for logits, _ in outputs[group]], 1)
    by_each = torch.stack([logits.mean() for group in ("mpd", "mrd") for logits, _ in outputs[group]]).mean()
    assert abs(concatenated.mean() - by_each) > 1e-3
