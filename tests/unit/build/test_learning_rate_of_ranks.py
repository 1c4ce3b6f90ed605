"""`local_sgd.lr_rule`: the rates of players whose ranks step by their own rows."""

import pytest
import torch
from torch import nn

from paragan.build.players import player
from paragan.core.dist import World
from paragan.core.network_factory import NetworkFactory
from paragan.core.option_types import Choice
from paragan.core.types import Side
from paragan.game.options import OptimizerOptions, PlayerOptions
from paragan.parallel import local_sgd

OPTIMIZER = OptimizerOptions("Adam", 0.1, groups=({"match": "0.*", "lr": 0.3},))


@pytest.mark.parametrize(("rule", "size", "factor"), [("sqrt", 4, 2.0), ("sqrt", 1, 1.0), ("none", 4, 1.0)])
def test_rates_of_all_groups_follow_the_number_of_ranks(rule, size, factor):
    world = World(
        rank=0, size=size, local_rank=0, local_size=size, device=torch.device("cpu"), group=object()
    )  # nothing is sent before the first update
    make = NetworkFactory(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    strategy = Choice("local_sgd", local_sgd.Options(lr_rule=rule))
    seat = player(
        Side.G, make, PlayerOptions(optimizer=OPTIMIZER, strategy=strategy, precision="fp32", ema=None), world=world
    )
    rates = [float(group["lr"]) for group in seat.optimizer.param_groups]
    assert sorted(rates) == pytest.approx([0.1 * factor, 0.3 * factor])
