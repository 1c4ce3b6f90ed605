"""The recipe `codec`'s step is EnCodec's: 50 steps of its plain loop in float64, 1e-12.

The first 15 of them by default. In one process; `tests/distributed/test_codec.py` has two ranks.
"""

import itertools

import pytest
import torch

from paragan.core.layout import StoredTensors
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous
from tests.laws.codec_gan import STEPS, batches, game, network, plain, player
from tests.laws.small_gan import distance

FEW = 15


def play(gan, begin, end):
    stream = batches(start=begin)
    for _ in range(begin, end):
        report = synchronous.step(gan, stream)
    return report.read()


def difference(gan, nets):
    return max(distance(dict(seat.net.state_dict()), dict(nets[seat.side].state_dict())) for seat in (gan.g, gan.d))


@pytest.mark.parametrize(
    ("parts", "is_relative", "steps"),
    [
        (1, True, FEW),
        *(pytest.param(*case, STEPS, marks=pytest.mark.slow) for case in ((3, False), (1, True), (1, False))),
    ],
)
def test_training_is_the_plain_loop(parts, is_relative, steps):
    gan = game(*(player(side, parts=parts) for side in Side), is_relative)
    report = play(gan, 0, steps)
    assert difference(gan, plain(is_relative, steps)) <= 1e-12
    assert difference(gan, plain(not is_relative, steps)) > 1e-4
    assert difference(gan, {side: network(side) for side in Side}) > 5e-3
    assert {"g/balancer/log_mel", "g/loss/codebook", "d/loss/adversarial/0"} <= report.keys()
    assert "g/balancer/codebook" not in report


@pytest.mark.parametrize(
    "sessions", [(0, 6, 11, FEW), pytest.param((0, 15, 25, STEPS), marks=pytest.mark.slow)], ids=["short", "whole"]
)
def test_resumed_training_is_the_plain_loop(sessions):
    gan = game(*(player(side) for side in Side))
    for begin, end in itertools.pairwise(sessions):
        states = {seat.side: state_of(seat) for seat in (gan.g, gan.d)}
        gan = game(*(player(side) for side in Side))
        for seat in (gan.g, gan.d):
            pieces, counters = states[seat.side]
            saved = StoredTensors.of({key: torch.clone(value) for key, value in pieces.tensors.items()})
            restore(seat, saved, counters)
        play(gan, begin, end)
    assert difference(gan, plain(steps=sessions[-1])) <= 1e-12
