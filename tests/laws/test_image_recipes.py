"""The steps of the recipes `translate` and `superres` are those of their plain loops in float64, 1e-12.

In one process; `tests/distributed/test_image_recipes.py` has two ranks.
"""

import pytest
import torch

from paragan.core.layout import StoredTensors
from paragan.core.types import Side
from paragan.game.state import restore, state_of
from paragan.schemes import synchronous
from tests.laws.image_recipes import MODELS, STEPS, batches, game, network, plain, player
from tests.laws.small_gan import distance


def difference(gan, nets):
    return max(distance(dict(seat.net.state_dict()), dict(nets[seat.side].state_dict())) for seat in (gan.g, gan.d))


@pytest.mark.parametrize("parts", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("recipe", MODELS)
def test_training_resumed_is_the_plain_loop(recipe, parts):
    gan = game(recipe, *(player(recipe, side, parts=parts) for side in Side))
    for begin, end in ((0, 9), (9, 17), (17, STEPS)):
        states = {seat.side: state_of(seat) for seat in (gan.g, gan.d)}
        gan = game(recipe, *(player(recipe, side, parts=parts) for side in Side))
        for seat in (gan.g, gan.d):
            pieces, counters = states[seat.side]
            saved = StoredTensors.of({key: torch.clone(value) for key, value in pieces.tensors.items()})
            restore(seat, saved, counters)
        stream = batches(recipe, start=begin)
        for _ in range(begin, end):
            synchronous.step(gan, stream)
    assert difference(gan, plain(recipe)) <= 1e-12
    assert difference(gan, {side: network(recipe, side) for side in Side}) > 1e-2
