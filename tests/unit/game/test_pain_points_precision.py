"""Pain points of low precision: the naive code shows the symptom, ours does not.

Both in real float16 on the CPU where that matters: the library refuses it there in a run because it is slow.
"""

import pytest
import torch
from torch import nn

from paragan.core.protocols import Loss
from paragan.core.types import Batch, Side
from paragan.game.gan import GAN
from paragan.game.network import Calling
from paragan.game.player import Player
from paragan.game.policy import Policy, Scaler
from paragan.game.prior import Prior
from paragan.hardware import precision
from paragan.losses import hinge
from paragan.parallel import none
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


def scaled(d: nn.Module, scale: float, penalties=(), dtype=torch.float16) -> GAN:
    seats = [Player(**seat, calling=Calling(dtype, scaled=True)) for seat in _seats(d)]
    for seat in seats:
        seat.scaler = Scaler(CPU, initial=scale)
    return GAN(
        g=seats[0],
        d=seats[1],
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=Prior(seed=5, latent=6),
        d_penalties=penalties,
    )


def _seats(d: nn.Module):
    for side, net in ((Side.G, Painter()), (Side.D, d)):
        policy = Policy(kind=torch.optim.SGD, lr=1e-3)
        yield {"side": side, "net": net, "strategy": none.Strategy(), "policy": policy}


def reals(factor: float):
    for batch in batches():
        yield Batch(batch.rows, {"image": (batch.image + 1).float() * factor})


def parameters(net: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_one_loss_scale_for_two_optimisers_lets_an_overflow_of_one_change_the_other():
    """huggingface/accelerate #174; muslll/neosr #50: D's overflow lowers the scale that G's next turn starts from."""
    g, d = nn.Linear(2, 1), nn.Linear(2, 1)
    one = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for net, factor in ((d, float("inf")), (g, 1.0)):
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        one.scale((net(torch.ones(1, 2)) * factor).sum()).backward()
        one.step(optimizer)
    one.update()
    assert one.get_scale() == 512.0

    gan = scaled(Judge(), 1024.0, dtype=None)
    bad = next(reals(1.0))
    bad.image[0] = float("inf")
    synchronous.step(gan, iter([bad]))
    assert [float(seat.scaler.scale) for seat in (gan.g, gan.d)] == [1024.0, 512.0]
    assert [int(seat.updates) for seat in (gan.g, gan.d)] == [1, 0]


def test_float16_overflows_once_and_is_nan_for_ever():
    """lucidrains/gigagan-pytorch #60, lightweight-gan #92, unet-stylegan2 #9, stylegan2-pytorch #100;
    neuralchen/SimSwap #194; rosinality/stylegan2-pytorch #210. By default ours never computes in it.
    """
    naive, stream, losses = Judge(), reals(8.0), []
    optimizer = torch.optim.SGD(naive.parameters(), 1e-3)
    for _ in range(12):
        with torch.autocast("cpu", torch.float16):
            loss = hinge.d_loss(naive(next(stream).image), naive(torch.zeros(8, 64))).mean()
        optimizer.zero_grad()
        (loss * 2.0**20).backward()
        for p in naive.parameters():
            p.grad /= 2.0**20
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == losses[0]
    assert not any(loss == loss for loss in losses[-3:])

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
    x = next(reals(1e-3)).image
    half = x.half().requires_grad_()
    with torch.autocast("cpu", torch.float16):
        (slope,) = torch.autograd.grad(d(half).sum(), half, create_graph=True)
        assert (0.3 / 2 * slope.flatten(1).square().sum(1)).isinf().all()

    gan = scaled(d, 64.0, penalties=(r1.Penalty(r1.Options(weight=0.3)),))
    assert synchronous.step(gan, reals(1e-3)).read()["d/loss/r1"] == pytest.approx(exact, rel=1e-2)
