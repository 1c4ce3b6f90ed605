"""Relativistic averages against loops, and how the game hands them the logits of the whole batch."""

import math
from dataclasses import replace

import pytest
import torch

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.layers.all_reduce import ReduceGroup
from paragan.losses import relativistic_average
from paragan.parallel.base import forward_backward
from paragan.parallel.base.strategy import input_gradient
from tests.one_turn import nets, play, turn

REAL, FAKE = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PRICES = {
    "logistic": lambda a: -math.log(1 / (1 + math.exp(-a))),
    "least_squares": lambda a: (a - 1) ** 2,
    "hinge": lambda a: max(0, 1 - a),
}


def naive(kind, one, other):
    """Of each row: one kind above the mean of the other, the other below the mean of this one."""
    mean_one, mean_other = (sum(values) / len(values) for values in (one, other))
    price = PRICES[kind]
    return [price(a - mean_other) + price(-(b - mean_one)) for a, b in zip(one, other, strict=True)]


@pytest.mark.parametrize("kind", PRICES)
def test_it_is_the_papers(kind):
    pair = relativistic_average.loss(relativistic_average.Options(kind))
    real, fake = REAL.tolist(), FAKE.tolist()
    torch.testing.assert_close(pair.d(REAL, FAKE).tolist(), naive(kind, real, fake), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(pair.g(FAKE, REAL).tolist(), naive(kind, fake, real), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", PRICES)
def test_rows_of_a_batch_are_those_of_the_whole(kind):
    """What a rank computes of its rows; patches have means over all places."""
    pair = relativistic_average.loss(relativistic_average.Options(kind))
    real, fake = REAL.view(3, 2), FAKE.view(3, 2)
    for function, a, b in ((pair.d, real, fake), (pair.g, fake, real)):
        rows = [function(a[part], b[part], a, b) for part in (slice(0, 1), slice(1, 3))]
        torch.testing.assert_close(torch.cat(rows).flatten(), function(a.flatten(), b.flatten()), rtol=1e-13, atol=0)


def test_missing_rows_without_ranks_to_gather_from_are_refused():
    """In parts without `build`, and on a worker of a parameter server, which plays its share by itself."""
    loss = Loss(relativistic_average.d_loss, relativistic_average.g_loss, True, compares=True)
    played = replace(turn(Side.D), objective=GAN(g=None, d=None, loss=loss, prior=Prior(seed=0, latent=1))._d_objective)
    with pytest.raises(ConfigError, match=r"^loss: it, or a penalty, compares all 6 samples .* only 2 are"):
        play(played, nets(), parts=3)
    called = {side: CalledNetwork(module=net) for side, net in nets().items()}
    with pytest.raises(
        ConfigError, match=r"^loss: it, or a penalty, compares all 6 samples"
    ):  # ranks could be gathered, but not three times
        forward_backward.forward_backward(
            played, called, 3, input_gradient, reduction=forward_backward.Reduction(across=ReduceGroup(None))
        )
    rows = replace(played.feed.rows, total=12)
    with pytest.raises(ConfigError, match=r"^loss: it, or a penalty, compares all 12 samples of the batch, but only 6"):
        play(replace(played, feed=replace(played.feed, rows=rows)), nets())


def test_a_stack_refuses_it_and_cells_one_by_one_take_it(tmp_path):
    """A stack's rows are those of all cells: their mean would be nobody's."""
    from paragan.extensions.grid.build import trainer as grid
    from tests.extensions.grid.test_cell_options import WORDS

    words = (*WORDS, "loss=relativistic_average", "grid.fitness.loss=relativistic_average", "train.kimg=0.032")
    told = "grid.executor=stacked is not possible: a loss compares the samples of a batch"
    with pytest.raises(ConfigError, match=told):
        grid.evolution(read_recipe("digits", (*words, "grid.executor=stacked")), tmp_path, print, lambda: False)
    run = grid.evolution(read_recipe("digits", words), tmp_path, print, lambda: False)
    list(run.run())
    assert run.clock.images >= 32
