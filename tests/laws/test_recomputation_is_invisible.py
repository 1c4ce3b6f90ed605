"""Steps of BigGAN and StyleGAN2 with recomputed blocks are those without, in float64, 1e-10.

R1 and path length differentiate twice through recomputed blocks; StyleGAN2 draws noise and styles in them. At 1024 px
one forward and backward of each network, without players.
"""

from __future__ import annotations

from itertools import count

import pytest
import torch

import paragan as pg
from paragan.core import registry, rng
from paragan.core.types import Batch, Rows, Side
from paragan.game.network import CalledNetwork
from paragan.game.sampling import generate_images
from paragan.game.state_buffers import attach_state
from paragan.layers.init import initialise
from paragan.parallel import MemoryOptions, none
from paragan.penalties import path_length, r1
from paragan.schemes import synchronous

BATCH, STEPS = 4, 3
SIZES = {
    "biggan": {"width": 8, "attention": None, "latent": 9, "conditional": False},
    "stylegan2": {"width": 6, "base": 128, "latent": 8, "style": 8, "mapping": 2, "conditional": False},
}


def network(model, side, image, **sizes):
    module = registry.load_module("models", model)
    kind = module.Generator if side is Side.G else module.Discriminator
    net = kind(module.Options(**{**SIZES[model], **sizes}), (3, image, image)).double()
    initialise(net, 0, side.value)
    return net


def player(model, side, recompute, image):
    strategy = none.Strategy(None, MemoryOptions(recompute=recompute))
    policy = pg.Policy(torch.optim.Adam, 1e-3, {"betas": (0.5, 0.9), "eps": 1e-4})
    net = strategy.prepare(lambda: network(model, side, image), None)
    return pg.Player(side, net, strategy, policy)


def weights_after(model, steps, recompute):
    g, d = (player(model, side, recompute, 16) for side in (Side.G, Side.D))
    terms = (r1.Penalty(r1.Options(weight=1.0)),)
    if model == "stylegan2":
        terms = (*terms, path_length.Penalty(path_length.Options(interval=1)))
    prior = pg.Prior(g.net.latent, 0, dtype=torch.float64)
    gan = pg.GAN(g, d, pg.nonsaturating_loss(pg.NonsaturatingOptions()), prior, terms)
    attach_state(gan)
    stream = (Batch(Rows(n, 0, BATCH, BATCH), {"image": reals(n)}) for n in count())
    for _ in range(steps):
        synchronous.step(gan, stream)
    return {f"{p.side.value}.{name}": value for p in (g, d) for name, value in p.net.state_dict().items()}


def reals(step):
    return torch.randn(BATCH, 3, 16, 16, generator=rng.generator("reals", step), dtype=torch.float64).tanh()


@pytest.mark.parametrize("model", SIZES)
def test_training_with_recomputed_blocks_equals_training_without(model):
    plain, recomputed, start = (weights_after(model, *of) for of in ((STEPS, False), (STEPS, True), (0, False)))
    for name, value in plain.items():
        torch.testing.assert_close(recomputed[name], value, rtol=0, atol=1e-10, msg=name)
    assert max(float((plain[name] - start[name]).abs().max()) for name in plain) > 1e-3


def test_images_of_1024_px_are_generated_a_few_at_a_time():
    """As many pixels in a call as of 250 images of 128 px; the images are those of one call."""
    net = network("stylegan2", Side.G, 1024, width=1, base=1, latent=4, style=4).float()
    rows = []
    net.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    z = torch.randn(6, 4)
    images = generate_images(CalledNetwork(net), z, None)
    assert rows == [1, 3, 3]
    assert generate_images(CalledNetwork(net), z[4:5], None).equal(images[4:5])
    assert rows == [1, 3, 3, 1]
