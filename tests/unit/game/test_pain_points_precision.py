"""Pain points of low precision, in real float16 on the CPU, which a run refuses there because it is slow."""

import pytest
import torch
from torch import nn

from paragan.core.protocols import Loss
from paragan.core.types import Batch, Side
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.optimizer_calls import Scaler
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.hardware import precision
from paragan.losses import hinge
from paragan.penalties import r1
from paragan.schemes import synchronous
from tests.laws.small_gan import batches

CPU = torch.device("cpu")


class Judge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x, y=None):
        return self.net(x).squeeze(1)


class Painter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh())

    def forward(self, z, y=None):
        return self.net(z).unflatten(1, (1, 8, 8))


def scaled(d: nn.Module, scale: float, penalties=()) -> GAN:
    seats = []
    for side, net in ((Side.G, Painter()), (Side.D, d)):
        policy = Policy(kind=torch.optim.SGD, lr=1e-3)
        seats.append(Player(side=side, net=net, policy=policy, calling=Calling(torch.float16, scaled=True)))
        seats[-1].scaler = Scaler(CPU, initial=scale)
    return GAN(
        g=seats[0],
        d=seats[1],
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=5, latent=6),
        d_penalties=penalties,
    )


def reals(factor: float):
    for batch in batches():
        yield Batch(batch.rows, {"image": (batch.image + 1).float() * factor})


def parameters(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_float16_that_overflows_is_skipped_and_goes_on():
    """lucidrains/gigagan-pytorch #60, lightweight-gan #92, unet-stylegan2 #9, stylegan2-pytorch #100;
    neuralchen/SimSwap #194; rosinality/stylegan2-pytorch #210. By default ours never computes in it.
    """
    d = Judge()
    gan, stream, start = scaled(d, 2.0**20), reals(8.0), parameters(d)
    told = [synchronous.step(gan, stream).read()["d/loss/adversarial"] for _ in range(12)]
    assert parameters(d).isfinite().all()
    assert 0 < int(gan.d.updates) < 12  # some were skipped, then it went on
    assert float(gan.d.scaler.scale) < 2.0**20
    assert told[-1] < told[0]
    assert not torch.equal(parameters(d), start)
    assert precision.dtype_of("auto", nn.Conv2d(1, 1, 1), CPU, Side.D) in (None, torch.bfloat16)


def test_a_penalty_in_float16_squares_beyond_its_range():
    """lucidrains/gigagan-pytorch #60; rosinality/stylegan2-pytorch #210: a slope of 300 squared is no float16."""
    d = nn.Sequential(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
    with torch.no_grad():
        d[1].weight.fill_(300.0)
        d[1].bias.zero_()
    exact = 0.3 / 2 * 64 * 300.0**2
    gan = scaled(d, 64.0, penalties=(r1.Penalty(r1.Options(weight=0.3)),))
    assert synchronous.step(gan, reals(1e-3)).read()["d/loss/r1"] == pytest.approx(exact, rel=1e-2)
