"""Steps of BigGAN and StyleGAN2 with recomputed blocks are those without, in float64, 1e-10.

R1 and path length differentiate twice through recomputed blocks; StyleGAN2 draws noise and styles in them.
"""

from copy import deepcopy
from functools import partial
from itertools import count

import pytest
import torch

import paragan as pg
from paragan.core import registry, rng
from paragan.core.protocols import Loss
from paragan.core.types import Batch, Rows, Side
from paragan.game.prior import Prior
from paragan.layers.init import initialise
from paragan.losses import nonsaturating
from paragan.parallel import MemoryOptions, none
from paragan.penalties import path_length, r1
from paragan.schemes import synchronous

BATCH, STEPS = 4, 2
SIZES = {
    "biggan": {"width": 8, "attention": None, "latent": 9, "conditional": False},
    "stylegan2": {"width": 6, "base": 128, "latent": 8, "style": 8, "mapping": 2, "conditional": False},
}


def network(model, side, image):
    module = registry.load_module("models", model)
    kind = module.Generator if side is Side.G else module.Discriminator
    net = kind(module.Options(**SIZES[model]), (3, image, image)).double()
    initialise(net, 0, side.value)
    return net


def player(model, side, recompute, image):
    strategy = none.Strategy(None, MemoryOptions(recompute=recompute))
    policy = pg.Policy(kind=torch.optim.Adam, lr=1e-3, arguments={"betas": (0.5, 0.9), "eps": 1e-4})
    net = strategy.prepare(lambda: network(model, side, image), None)
    return pg.Player(side=side, net=net, strategy=strategy, policy=policy)


def trained(model, steps, recompute):
    """Weights after some steps, and the number of forward passes of each player's layers."""
    g, d = (player(model, side, recompute, 16) for side in (Side.G, Side.D))
    calls = {Side.G: 0, Side.D: 0}

    def count_call(side, *_):
        calls[side] += 1

    for one in (g, d):
        for module in one.net.blocks.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(partial(count_call, one.side))
    d_terms = (r1.Penalty(r1.Options(weight=1.0)),)
    g_terms = (path_length.Penalty(path_length.Options(interval=1)),) if model == "stylegan2" else ()
    prior = Prior(seed=0, latent=g.net.latent, dtype=torch.float64)
    loss = Loss(nonsaturating.d_loss, nonsaturating.g_loss)
    gan = pg.GAN(g=g, d=d, loss=loss, prior=prior, g_penalties=g_terms, d_penalties=d_terms)
    stream = (Batch(Rows(step=n, first=0, count=BATCH, total=BATCH), {"image": reals(n)}) for n in count())
    for _ in range(steps):
        synchronous.step(gan, stream)
    weights = {f"{p.side.value}.{name}": value for p in (g, d) for name, value in p.net.state_dict().items()}
    return weights, calls


def reals(step):
    return torch.randn(BATCH, 3, 16, 16, generator=rng.generator("reals", step), dtype=torch.float64).tanh()


@pytest.mark.parametrize("model", SIZES)
def test_training_with_recomputed_blocks_equals_training_without(model):
    (plain, calls), (recomputed, more_calls), (start, _) = (
        trained(model, *of) for of in ((STEPS, False), (STEPS, True), (0, False))
    )
    assert all(more_calls[side] > calls[side] for side in Side)
    for name, value in plain.items():
        torch.testing.assert_close(recomputed[name], value, rtol=0, atol=1e-10, msg=name)
    assert max(float((plain[name] - start[name]).abs().max()) for name in plain) > 1e-3


def test_copy_of_a_recomputed_network_has_its_own_weights():
    """As an opponent's snapshot: its output changes with its weights, and no gradient reaches the original."""
    strategy = none.Strategy(None, MemoryOptions(recompute=True))
    net = strategy.prepare(lambda: network("biggan", Side.D, 16), None)
    copied = deepcopy(net).requires_grad_(False)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(1.1)
    plain = network("biggan", Side.D, 16)
    plain.load_state_dict(copied.state_dict())
    x = reals(0).requires_grad_()
    found, expected = (torch.autograd.grad(one(x).logits_B.sum(), x)[0] for one in (copied, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    copied(x).logits_B.sum().backward()
    assert all(weight.grad is None for weight in net.parameters())
