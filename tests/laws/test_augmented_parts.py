"""Parts are the whole, also where D is shown augmented images and G's terms see more than images: 1e-12 in float64."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.augment.diffaugment import Augment, Options
from paragan.core import rng
from paragan.losses import nonsaturating
from paragan.penalties import r1
from paragan.schemes import synchronous

SHAPE, BATCH = (2, 8, 8), 6


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.code = nn.Linear(4, 128), nn.Linear(4, 3)

    def forward(self, z):
        return pg.GeneratorOutput(self.image(z).tanh().view(-1, *SHAPE), {"code": self.code(z)})


def game(parts):
    torch.manual_seed(0)
    policy = pg.Policy(kind=torch.optim.SGD, lr=0.1, micro_batches=parts)
    d = nn.Sequential(nn.Flatten(), nn.Linear(128, 16), nn.Tanh(), nn.Linear(16, 1))
    g, d = (pg.Player(side=side, net=net.double(), policy=policy) for side, net in ((pg.Side.G, G()), (pg.Side.D, d)))
    return pg.GAN(
        g=g,
        d=d,
        loss=pg.Loss(nonsaturating.d_loss, nonsaturating.g_loss),
        prior=pg.Prior(seed=0, latent=4, dtype=torch.float64),
        g_penalties=(pg.Term(name="code", function=lambda outputs, feed: outputs.extra["code"].square(), weight=0.3),),
        d_penalties=(r1.Penalty(r1.Options(weight=1.0)),),
        augment=Augment(Options()),
    )


def batches():
    for step in range(3):
        rows = pg.Rows(step=step, first=0, count=BATCH, total=BATCH)
        yield pg.Batch(rows, {"image": rng.normal(1, "x", rows, SHAPE).double().tanh()})


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_are_the_whole(parts):
    games = [game(1), game(parts)]
    for gan in games:
        stream = batches()
        for _ in range(3):
            synchronous.step(gan, stream)
    for a, b in zip(*((*gan.g.net.parameters(), *gan.d.net.parameters()) for gan in games), strict=True):
        assert (a - b).abs().max() <= 1e-12
        assert a.abs().max() > 0
