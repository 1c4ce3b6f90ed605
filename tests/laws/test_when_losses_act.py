"""A VQGAN whose D and adversarial term begin later is its plain loop: 50 steps in float64, 1e-12.

In one process; `tests/distributed/test_when_losses_act.py` has two ranks.
"""

import pytest

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous
from tests.laws.small_gan import distance
from tests.laws.vqgan_gan import D_START, G_START, STEPS, batches, game, network, plain, player


def difference(gan, nets):
    pairs = ((gan.g.net, nets[Side.G]), (gan.d.net, nets[Side.D]))
    return max(distance(dict(mine.state_dict()), dict(other.state_dict())) for mine, other in pairs)


@pytest.mark.parametrize("parts", [1, 3])
def test_training_is_the_plain_loop(parts):
    nets, losses = plain()
    gan = game(*(player(side, parts=parts) for side in Side))
    stream = batches()
    for step, expected in enumerate(losses):
        report = synchronous.step(gan, stream).read()
        assert {name: report[name] for name in report if "adversarial" in name} == pytest.approx(expected, rel=1e-5)
        assert gan.d.net.calls == 0 or step >= D_START
    assert difference(gan, nets) <= 1e-12
    assert gan.d.version == STEPS - D_START
    assert gan.d.net.calls == parts * (STEPS - D_START + STEPS - G_START)  # D sees real and fakes in one call
    assert min(distance(dict(n.state_dict()), dict(network(side).state_dict())) for side, n in nets.items()) > 1e-2


def test_resumed_training_is_the_plain_loop(tmp_path):
    """Saved between both starts, and after them."""
    gan = game(*(player(side) for side in Side))
    writer = CheckpointWriter(folder=tmp_path)
    for begin, end in ((0, 15), (15, 25), (25, STEPS)):
        stream = batches(start=begin)
        for _ in range(begin, end):
            synchronous.step(gan, stream)
        states = {seat.side.value: state_of(seat) for seat in (gan.g, gan.d)}
        groups = {side: pieces for side, (pieces, _) in states.items()}
        writer.save(end, groups, {side: counts for side, (_, counts) in states.items()})
        gan = game(*(player(side) for side in Side))
        found = CheckpointWriter(folder=tmp_path).newest()
        for seat in (gan.g, gan.d):
            restore(seat, found.groups[seat.side.value], found.values[seat.side.value])
    assert difference(gan, plain()[0]) <= 1e-12
