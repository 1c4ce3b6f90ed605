"""The one-file example computes what the library computes: same networks, same draws, float64."""

import importlib.util
from pathlib import Path

import pytest
import torch

from paragan.core import rng
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.layers.spectral_norm import spectral_norm
from paragan.losses import hinge
from paragan.parallel import none
from paragan.penalties import r1
from paragan.schemes import synchronous

FILE = Path(__file__).resolve().parents[2] / "examples/train_in_one_file.py"
BATCH, STEPS, WIDTH, DTYPE = 8, 6, 4, torch.float64


@pytest.fixture(scope="module")
def naive():
    spec = importlib.util.spec_from_file_location("train_in_one_file", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def real_batch(naive, step: int) -> Batch:
    rows = Rows(step=step, first=0, count=BATCH, total=BATCH)
    x = rng.uniform(1, "x", rows, (1, 8, 8)).to(DTYPE) * 2 - 1
    return Batch(rows, {"image": x, "label": rng.integers(1, "y", rows, naive.CLASSES)})


def library_game(naive, nets, prior) -> GAN:
    """The library on the example's networks and settings, starting from the same weights."""
    policy = Policy(kind=torch.optim.Adam, lr=naive.ADAM["lr"], arguments={"betas": naive.ADAM["betas"]})

    def make(kind, weights):
        net = kind(spectral_norm, WIDTH).to(DTYPE)
        net.load_state_dict(weights)
        return net

    g, d = nets
    ema = Ema(make(naive.Generator, g.state_dict()), EmaOptions(naive.HALF_LIFE_IMAGES / 1000))
    return GAN(
        g=Player(
            side=Side.G, net=make(naive.Generator, g.state_dict()), strategy=none.Strategy(), policy=policy, ema=ema
        ),
        d=Player(side=Side.D, net=make(naive.Discriminator, d.state_dict()), strategy=none.Strategy(), policy=policy),
        loss=Loss(hinge.d_loss, hinge.g_loss),
        prior=prior,
        d_penalties=(r1.Penalty(r1.Options(weight=naive.R1_WEIGHT, interval=naive.R1_EVERY)),),
    )


def test_the_one_file_example_equals_the_library(naive):
    torch.manual_seed(0)
    g, d, average = (
        kind(naive.naive_spectral_norm, WIDTH).to(DTYPE)
        for kind in (naive.Generator, naive.Discriminator, naive.Generator)
    )
    average.load_state_dict(g.state_dict())
    prior = Prior(seed=7, latent=naive.LATENT, num_classes=naive.CLASSES, dtype=DTYPE)
    gan = library_game(naive, (g, d), prior)
    adam = [torch.optim.Adam(net.parameters(), **naive.ADAM) for net in (g, d)]
    start = {name: value.clone() for name, value in d.state_dict().items()}

    for step in range(STEPS):
        batch = real_batch(naive, step)
        report = synchronous.step(gan, iter([batch])).read()
        losses = naive.train_step(
            step,
            g,
            d,
            average,
            *adam,
            batch.image,
            batch.label,
            lambda s, n: prior.draw(s, Rows(step=n, first=0, count=BATCH, total=BATCH)),
        )
        told = (report["d/loss/adversarial"] + report.get("d/loss/r1", 0.0), report["g/loss/adversarial"])
        assert told == pytest.approx([float(loss) for loss in losses], abs=1e-5)

    for mine, theirs in ((gan.g.net, g), (gan.d.net, d), (gan.g.ema.net, average)):
        for name, value in theirs.state_dict().items():
            assert torch.allclose(mine.state_dict()[name], value, rtol=0, atol=1e-12), name
    assert max(float((d.state_dict()[name] - value).abs().max()) for name, value in start.items()) > 1e-3


def test_the_example_is_short_and_stands_alone():
    text = FILE.read_text()
    assert text.count("\n") <= 120
    assert "import paragan" not in text
    assert "from paragan" not in text
