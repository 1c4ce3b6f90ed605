"""Starts of D and of the adversarial term, and D's updates by coin and by need, on the rows of this rank."""

from dataclasses import replace

import torch
from torch import nn

import paragan as pg
from paragan.core import rng
from paragan.core.dist import World
from paragan.core.types import Side
from paragan.game.options import AdversarialOptions
from paragan.parallel import none
from paragan.schemes import synchronous
from tests.distributed.cases_laws import strategy
from tests.distributed.sessions import train_in_sessions
from tests.laws.small_gan import distance
from tests.laws.vqgan_gan import BATCH, STEPS, batches, game, plain, player


def plain_loop(world: World, folder: str, strategies: str, parts: int) -> float:
    """The largest difference of a weight from the plain loop; saved and built anew at steps 15 and 25."""

    def built():
        return game(*(player(side, strategy(strategies), world, parts) for side in Side))

    share = world.share(BATCH)
    gan = train_in_sessions(world, folder, (15, 25, STEPS), built, lambda start: batches(*share, start=start))
    nets = plain()[0]
    return max(distance(s.strategy.weights(s.net), dict(nets[s.side].state_dict())) for s in (gan.g, gan.d))


class Coder(nn.Module):
    """Only the adversarial loss reaches its decoder."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 4)
        self.decoder = nn.Linear(4, 2)

    def forward(self, z):
        h = self.encoder(z).tanh()
        return pg.GeneratorOutput(self.decoder(h), {"h": h})


def decoder_without_loss(world: World, kind: str, weight: dict) -> list[float]:
    """The change of the decoder before and after step 4, and the largest difference from one process."""
    alone = _decoder_game(none.Strategy(), None, weight)
    gan = _decoder_game(strategy(kind), world, weight)
    seen = []
    for step in range(8):
        before = _decoder(gan)
        synchronous.step(gan, iter([_points(step, *world.share(6))]))
        synchronous.step(alone, iter([_points(step)]))
        seen.append(float((_decoder(gan) - before).abs().max()))
    pairs = ((gan.g, alone.g), (gan.d, alone.d))
    differences = [distance(mine.strategy.weights(mine.net), dict(other.net.state_dict())) for mine, other in pairs]
    return [max(seen[:4]), max(seen[4:]), max(differences)]


def _decoder_game(strategy, world, weight: dict) -> pg.GAN:
    torch.manual_seed(0)
    nets = {Side.G: Coder().double(), Side.D: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()}
    policy = pg.Policy(kind=torch.optim.Adam, lr=0.01)
    g, d = (
        pg.Player(side=side, net=strategy.prepare(lambda net=net: net, world), strategy=strategy, policy=policy)
        for side, net in nets.items()
    )
    near = pg.Term(name="prior", function=lambda outputs, inputs: outputs.extra["h"].square())
    prior = pg.Prior(seed=1, latent=3, dtype=torch.float64, discriminator_arguments=("point",))
    when = pg.AdversarialOptions(weight=pg.WeightSchedule(**weight, from_kimg=0.024, shape="step"))
    return pg.GAN(g=g, d=d, loss=pg.hinge_loss, prior=prior, g_penalties=(near,), adversarial=when)


def _decoder(gan: pg.GAN) -> torch.Tensor:
    return gan.g.strategy.weights(gan.g.net)["decoder.weight"].clone()


def _points(step: int, first: int = 0, count: int = 6) -> pg.Batch:
    rows = pg.Rows(step=step, first=first, count=count, total=6)
    return pg.Batch(rows, {"point": rng.normal(3, "point", rows, (2,)).double()})


def by_coin(world: World, strategies: str) -> list:
    """The batches of D's steps on this rank and in one process, and the largest difference."""
    here = _steps_of_d(batches(*world.share(BATCH)), lambda side: (strategy(strategies), world), world.sum)
    alone = _steps_of_d(batches(), lambda side: (none.Strategy(), None), lambda values: values)
    weights = distance(here[1].strategy.weights(here[1].net), dict(alone[1].net.state_dict()))
    return [here[0], alone[0], weights]


def _steps_of_d(stream, placed, total):
    g, d = (player(side, *placed(side)) for side in Side)
    policy = replace(d.policy, lr=0.05, update_probability=2 / 3)
    d = type(d)(side=Side.D, net=d.net, strategy=d.strategy, policy=policy)
    gan = replace(game(g, d), adversarial=AdversarialOptions(), sum_over_ranks=total)
    steps = []
    for step in range(STEPS):
        before = int(d.updates)
        synchronous.step(gan, stream)
        if int(d.updates) > before:
            steps.append(step)
    assert isinstance(d.updates, torch.Tensor)
    return steps, d


def lazy_local_sgd(world: World) -> list:
    """Updates and version of G after four turns, and its weights, where every second turn has no term."""
    torch.manual_seed(0)
    chosen = strategy("local_sgd", {"every": 2})
    net = chosen.prepare(lambda: nn.Linear(3, 2).double(), world)
    average = pg.Ema(chosen.prepare_average(lambda: nn.Linear(3, 2).double(), world), pg.EmaOptions(half_life_kimg=0))
    g = pg.Player(side=Side.G, net=net, strategy=chosen, policy=pg.Policy(kind=torch.optim.SGD, lr=0.1), ema=average)
    d = pg.Player(side=Side.D, net=nn.Linear(2, 1).double(), policy=pg.Policy(kind=torch.optim.SGD, lr=0.1))
    near = pg.Term(name="l1", function=lambda outputs, inputs: (outputs.images - inputs.real_sample).abs(), interval=2)
    prior = pg.Prior(seed=1, latent=3, dtype=torch.float64, discriminator_arguments=("point",))
    gan = pg.GAN(
        g=g,
        d=d,
        loss=pg.hinge_loss,
        prior=prior,
        g_penalties=(near,),
        adversarial=AdversarialOptions(start_kimg=1.0, d_start_kimg=1.0),
    )
    for step in range(4):
        synchronous.step(gan, iter([_points(step, *world.share(6))]))
    weights = [value.flatten().tolist() for value in (g.net.weight, g.ema.net.weight)]
    return [int(g.updates), g.version, g.images, *weights]
