"""The shared table of fitness is the plain double loop over pairs."""

import math

import pytest
import torch

from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.grid.fitness import FitnessEvaluator
from paragan.extensions.grid.genome import EvalNetwork, Genome, Traits
from paragan.extensions.grid.topology import ring, torus
from paragan.losses import nonsaturating
from paragan.models import mlp

SHAPE, NUM = (1, 4, 4), 20
OPTIONS = mlp.Options(latent=5, g_widths=(8,), d_widths=(8,), conditional=True)
LOSS = Loss(nonsaturating.d_loss, nonsaturating.g_loss)


def nets(cells):
    torch.manual_seed(0)
    kinds = {Side.G: mlp.Generator, Side.D: mlp.Discriminator}
    return [{side: kind(OPTIONS, SHAPE, 3).double() for side, kind in kinds.items()} for _ in range(cells)]


def genome(net):
    return Genome({f"net/{name}": value.clone() for name, value in net.state_dict().items()}, Traits(lr=1e-3))


def real(cell):
    draw = torch.Generator().manual_seed(cell)
    x = torch.rand((NUM, *SHAPE), generator=draw, dtype=torch.float64) * 2 - 1
    return Batch(Rows(step=0, first=0, count=NUM, total=NUM), {"image": x, "label": torch.arange(NUM) % 3})


def evaluator(reals):
    z = torch.randn(NUM, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    stages = {side: EvalNetwork(net) for side, net in nets(1)[0].items()}
    return FitnessEvaluator(eval_networks=stages, loss=LOSS, z_BZ=z, y_B=torch.arange(NUM) % 3, reals=reals)


@pytest.mark.parametrize(
    "topology", [torus(1, 1), torus(2, 2), torus(3, 4), ring(6, 2)], ids=lambda topology: str(len(topology.neighbours))
)
@pytest.mark.parametrize("by", ["mean", "worst", "best"])
@pytest.mark.parametrize("same_data", [True, False])
def test_fitness_equals_a_loop_over_pairs(topology, by, same_data):
    players = nets(len(topology.neighbours))
    centres = [{side: genome(net) for side, net in both.items()} for both in players]
    batches = [real(0 if same_data else cell) for cell in range(len(topology.neighbours))]
    found = evaluator(lambda cell: batches[0 if same_data else cell])
    aggregate = {"mean": lambda values: math.fsum(values) / len(values), "worst": max, "best": min}[by]
    with torch.no_grad():
        for cell, near in enumerate(topology.neighbours):
            x, y = batches[cell].image, batches[cell].label
            for one in near:
                fakes = players[one][Side.G](found.z_BZ, found.y_B)
                g = [LOSS.g(players[d][Side.D](fakes, found.y_B).logits_B, None).mean() for d in near]
                d_net = players[one][Side.D]
                theirs = [players[g][Side.G](found.z_BZ, found.y_B) for g in near]
                d = [LOSS.d(d_net(x, y).logits_B, d_net(fake, found.y_B).logits_B).mean() for fake in theirs]
                for side, plain, other in ((Side.G, g, Side.D), (Side.D, d, Side.G)):
                    told = found.fitness(side, centres[one][side], [centres[n][other] for n in near], cell, by)
                    assert told == pytest.approx(aggregate([float(value) for value in plain]), rel=1e-12)


def test_fitness_computes_images_and_logits_once(monkeypatch):
    topology, calls = torus(3, 3), {Side.G: 0, Side.D: 0}
    centres = [{side: genome(net) for side, net in both.items()} for both in nets(9)]
    found, batch = evaluator(lambda cell: batch), real(0)
    for side, stage in found.eval_networks.items():
        forward = stage.net.forward

        def counted(*inputs, forward=forward, side=side):
            calls[side] += 1
            return forward(*inputs)

        monkeypatch.setattr(stage.net, "forward", counted)
    for cell, near in enumerate(topology.neighbours):
        for side, other in ((Side.G, Side.D), (Side.D, Side.G)):
            for one in near:
                found.fitness(side, centres[one][side], [centres[n][other] for n in near], cell)
    # any two cells of a 3x3 torus share a neighbourhood: 81 pairs instead of 9 x 25, and each D sees real images once
    assert calls == {Side.G: 9, Side.D: 81 + 9}


@pytest.mark.parametrize("by", ["mean", "worst", "best"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_loss_that_is_not_finite_is_diverged_wherever_it_stands(monkeypatch, by, place, value):
    """A Wasserstein loss of -inf is no fittest network."""
    found = evaluator(lambda cell: real(0))
    losses = [1.0, 2.0]
    losses.insert(place, value)
    values = iter(losses)
    monkeypatch.setattr(found, "losses", lambda g, d, cell: dict.fromkeys(Side, next(values)))
    assert math.isnan(found.fitness(Side.G, None, [None] * 3, 0, by))
