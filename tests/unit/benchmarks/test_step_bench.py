"""`benchmarks/step`: both of its sides compute the same function, and either makes a step."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm

from benchmarks import step, step_dense
from paragan.layers.random import Dropout
from paragan.layers.spectral_norm import SpectralNorm

TOYS = {
    "sngan": replace(step.CASES["sngan"], width=8, batch=3),
    "biggan": replace(step.CASES["biggan"], width=4, batch=3),
    "pix2pix": replace(step.CASES["pix2pix"], width=2, batch=2, side=64),
}


def kinds(net: nn.Module, kind: type) -> list:
    return [module for module in net.modules() if isinstance(module, kind)]


def still(net: nn.Module) -> nn.Module:
    """In training but for what draws or moves."""
    for module in kinds(net, (nn.Dropout, Dropout, _SpectralNorm)):
        module.eval()
    return net.double()


def equal(case: step.Case) -> list[tuple[nn.Module, nn.Module]]:
    """(ours, plain) of G and D with the same weights, every one of them other than at the start."""
    torch.manual_seed(0)
    gan = case.game(*step.FP32, step.APART)
    pairs = [(still(ours.net), still(plain)) for ours, plain in zip((gan.g, gan.d), case.nets(), strict=True)]
    for ours, plain in pairs:
        with torch.no_grad():
            for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
                assert mine.shape == theirs.shape
                theirs.copy_(mine.add_(0.3 * torch.randn(mine.shape, dtype=torch.float64)))
            for mine, theirs in zip(kinds(ours, SpectralNorm), kinds(plain, _SpectralNorm), strict=True):
                theirs._u.copy_(mine.u), theirs._v.copy_(mine.v)
    return pairs


@pytest.mark.parametrize("unfolded", [False, True])
@pytest.mark.parametrize("name", TOYS)
def test_both_sides_are_the_same_networks(name, unfolded):
    case = TOYS[name]
    (g, plain_g), (d, plain_d) = equal(case)
    if unfolded:
        step.unfold(g), step.unfold(d)
    real = case.real()
    x = torch.randn(real.image.shape, dtype=torch.float64)
    if case.classes:
        z = torch.randn(case.batch, g.latent, dtype=torch.float64)
        images, plain_images = g(z, real.label), plain_g(z, real.label)
        logits, plain_logits = d(images, real.label).logits_B, plain_d(plain_images, real.label)
    else:
        images, plain_images = g(None, None, x), plain_g(x)
        logits = d(images, None, x).logits_B.unsqueeze(1)
        plain_logits = plain_d(plain_images, x)
    torch.testing.assert_close(images, plain_images, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(logits, plain_logits, rtol=1e-9, atol=1e-9)
    for ours, plain, out, plain_out in ((g, plain_g, images, plain_images), (d, plain_d, logits, plain_logits)):
        found = torch.autograd.grad(out.sin().sum(), list(ours.parameters()), retain_graph=True)
        expected = torch.autograd.grad(plain_out.sin().sum(), list(plain.parameters()), retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-8)


def test_dense_networks_are_the_same():
    plain_g, plain_d = step_dense.networks()
    gan = step_dense.ours(4).args[0]
    z, x = torch.randn(4, step_dense.LATENT), step_dense.real(4).image
    for mine, theirs, inputs in ((gan.g.net, plain_g, z), (gan.d.net, plain_d, x)):
        theirs.load_state_dict(dict(zip(theirs.state_dict(), mine.state_dict().values(), strict=True)))
        out = mine(inputs)
        out = out if torch.is_tensor(out) else out.logits_B.unsqueeze(1)
        torch.testing.assert_close(out, theirs(inputs))
    before = [weight.clone() for weight in (*gan.g.net.parameters(), *gan.d.net.parameters())]
    step_dense.plain(4)(), step_dense.synchronous.step(gan, iter([step_dense.real(4)]))
    moved = zip(before, (*gan.g.net.parameters(), *gan.d.net.parameters()), strict=True)
    assert not any(torch.equal(a, b) for a, b in moved)
