"""D by coin: which of its steps are taken."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core import rng
from paragan.schemes import synchronous
from tests.tiny_run import SMALL, TINY

BATCH = 8


def net(inputs, outputs, *last):
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs), *last)


def game(per_step=1, **policy):
    torch.manual_seed(0)
    g = pg.Player(side=pg.Side.G, net=net(3, 2), policy=pg.Policy(lr=0.01))
    d = pg.Player(
        side=pg.Side.D, net=net(2, 1, nn.Flatten(0)), policy=pg.Policy(lr=0.01, updates_per_step=per_step, **policy)
    )
    gan = pg.GAN(g=g, d=d, loss=pg.hinge_loss, prior=pg.Prior(seed=4, latent=3, arguments=("point",)))
    return gan


def batches(first=0, count=BATCH, shift=3.0):
    step = 0
    while True:
        rows = pg.Rows(step=step, first=first, count=count, total=BATCH)
        yield pg.Batch(rows, {"point": rng.normal(9, "points", rows, (2,)) + shift})
        step += 1


def updated(gan, stream, steps):
    """The batches at which D was updated."""
    found = []
    for step in range(steps):
        before = gan.d.version
        synchronous.step(gan, stream)
        found += [step] if gan.d.version > before else []
    return found


def test_coin_is_drawn_by_seed_and_batch_alone():
    whole = updated(game(update_probability=2 / 3), batches(), 60)
    assert whole == [n for n in range(60) if rng.fraction(4, "d/update", n) < 2 / 3]
    assert updated(game(update_probability=2 / 3), batches(first=5, count=3), 60) == whole
    gan = game(update_probability=2 / 3)
    assert gan.clock.images == 0 and gan.d_pauses == "d.update_probability"
    many = sum(rng.fraction(0, "d/update", n) < 2 / 3 for n in range(30_000)) / 30_000
    assert many == pytest.approx(2 / 3, abs=0.01)


def test_coin_of_each_batch_of_a_step():
    gan = game(per_step=3, update_probability=0.5)
    stream = batches()
    for _ in range(5):
        synchronous.step(gan, stream)
    assert gan.d.version == sum(rng.fraction(4, "d/update", n) < 0.5 for n in range(15))
    assert gan.clock.images == 15 * BATCH


def test_g_has_no_pauses(tmp_path):
    config = read_recipe("digits", [*TINY, *SMALL, "g.update_probability=0.5"])
    with pytest.raises(pg.ConfigError, match=r"g\.update_probability is not supported: every step has an update of G"):
        build.trainer(config, tmp_path, print, stop=lambda: False)
