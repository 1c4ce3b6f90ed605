"""The recipe `codec`'s step is EnCodec's: 50 steps of its plain loop in float64, 1e-12.

In one process; `tests/distributed/test_codec.py` has two ranks.
"""

from __future__ import annotations

import pytest
import torch

from paragan.core.pieces import StoredTensors
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous
from tests.laws.codec_gan import STEPS, batches, game, network, plain, player
from tests.laws.small_gan import distance


def play(gan, begin=0, end=STEPS):
    stream = batches(start=begin)
    for _ in range(begin, end):
        report = synchronous.step(gan, stream)
    return report.read()


def difference(gan, nets):
    return max(distance(dict(seat.net.state_dict()), dict(nets[seat.side].state_dict())) for seat in (gan.g, gan.d))


@pytest.mark.parametrize(
    ("parts", "is_relative"), [(3, False), (1, True), pytest.param(1, False, marks=pytest.mark.slow)]
)
def test_training_is_the_plain_loop(parts, is_relative):
    gan = game(*(player(side, parts=parts) for side in Side), is_relative)
    report = play(gan)
    assert difference(gan, plain(is_relative)) <= 1e-12
    assert difference(gan, plain(not is_relative)) > 1e-4
    assert difference(gan, {side: network(side) for side in Side}) > 1e-2
    assert {"g/balancer/log_mel", "g/loss/codebook", "d/loss/adversarial/0"} <= report.keys()
    assert "g/balancer/codebook" not in report


def test_resumed_training_is_the_plain_loop():
    gan = game(*(player(side) for side in Side))
    for begin, end in ((0, 15), (15, 25), (25, STEPS)):
        states = {seat.side: state_of(seat) for seat in (gan.g, gan.d)}
        gan = game(*(player(side) for side in Side))
        for seat in (gan.g, gan.d):
            pieces, counters = states[seat.side]
            saved = StoredTensors.of({key: torch.clone(value) for key, value in pieces.tensors.items()})
            restore(seat, saved, counters)
        play(gan, begin, end)
    assert difference(gan, plain()) <= 1e-12
