"""The pair of networks that makes images from images: sizes, dropout, what a logit sees."""

import pytest
import torch
from torch import nn

from paragan.core.errors import DataError
from paragan.layers.init import initialise
from paragan.layers.random import uses_random_numbers
from paragan.layers.update_once import mixes_samples
from paragan.models import pix2pix


def pair(side, **wanted):
    nets = [kind(pix2pix.Options(**wanted), (3, side, side)) for kind in (pix2pix.Generator, pix2pix.Discriminator)]
    for net in nets:
        initialise(net.double(), 0, type(net).__name__)
    return nets


def noise(count, side, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, side, side, generator=draws, dtype=torch.float64).tanh()


@pytest.mark.parametrize("norm", ["batch", "instance"])
def test_at_256_px_they_are_the_papers(norm):
    with torch.device("meta"):
        g, d = (kind(pix2pix.Options(norm=norm), (3, 256, 256)) for kind in (pix2pix.Generator, pix2pix.Discriminator))
        x = torch.empty(1, 3, 256, 256)
        assert g(torch.empty(1, 0), None, x).shape == x.shape
        verdict = d(x, None, x)
    assert verdict.logits_B.shape == (1, 30, 30)
    assert verdict.features.shape == (1, 512, 31, 31)


def test_dropout_is_on_the_three_layers_after_the_innermost():
    with torch.device("meta"):
        g = pix2pix.Generator(pix2pix.Options(), (3, 256, 256))
    ups = [block for block in g.blocks if isinstance(block, pix2pix.DecoderBlock)]
    assert [number for number, up in enumerate(ups) if up.dropout is not None] == [1, 2, 3]
    assert all(up.conv.out_channels == 512 and up.dropout.p == 0.5 for up in ups[1:4])
    assert uses_random_numbers(g) and not uses_random_numbers(pair(64, width=2, dropout=0.0)[0])


def test_a_logit_sees_70_by_70_pixels():
    _, d = pair(256, width=2, norm="instance")
    for module in d.modules():
        if isinstance(module, pix2pix.Patch):
            module.norm = None  # its statistics are of the whole map
    x = noise(1, 256).requires_grad_()
    (seen,) = torch.autograd.grad(d(x, None, noise(1, 256, 1)).logits_B[0, 15, 15], x)
    rows, columns = (seen[0].abs().sum((0, axis)).nonzero() for axis in (1, 2))
    assert [int(n[-1] - n[0]) + 1 for n in (rows, columns)] == [70, 70]


def test_every_map_of_the_way_down_is_used_on_the_way_up():
    g, _ = pair(64, width=2, dropout=0.0)
    whole = g(None, None, noise(2, 64))
    for level in range(5):
        kept = g.blocks[level].conv.weight.detach().clone()
        with torch.no_grad():
            g.blocks[level].conv.weight.mul_(1.5 if level == 0 else 0.5)
            g.blocks[level].conv.weight[0].mul_(-3)
        assert not torch.allclose(g(None, None, noise(2, 64)), whole)
        with torch.no_grad():
            g.blocks[level].conv.weight.copy_(kept)


def test_both_look_at_the_condition():
    g, d = pair(16, width=2)
    z, x = torch.empty(2, 0), noise(2, 16, 5)
    assert not torch.allclose(g(z, None, noise(2, 16, 1)), g(z, None, noise(2, 16, 2)))
    judged = [d(x, None, noise(2, 16, seed)).logits_B for seed in (1, 2)]
    assert not torch.allclose(*judged)


def test_instance_norm_keeps_the_samples_apart():
    for net in pair(16, width=2, norm="instance", dropout=0.0):
        assert not mixes_samples(net)
        x = noise(3, 16)
        whole, alone = (net(x[:n], None, x[:n]) for n in (3, 1))
        whole, alone = (getattr(out, "logits_B", out) for out in (whole, alone))
        torch.testing.assert_close(whole[:1], alone, rtol=1e-10, atol=1e-12)


def test_at_batch_1_batch_norm_is_instance_norm():
    for batch, instance in zip(pair(16, width=2), pair(16, width=2, norm="instance"), strict=True):
        for mine, theirs in zip(batch.parameters(), instance.parameters(), strict=True):
            theirs.data.copy_(mine.data)
        x = noise(1, 16)
        a, b = (getattr(out, "logits_B", out) for out in (batch(x, None, x), instance(x, None, x)))
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_activations_in_place_give_the_gradients_of_their_plain_forms(monkeypatch):
    g, d = pair(16, width=2, dropout=0.0)

    def gradients():
        for net in (g, d):
            net.zero_grad()
        x = noise(2, 16)
        d(g(None, None, x), None, x).logits_B.square().sum().backward()
        return [p.grad.clone() for net in (g, d) for p in net.parameters()]

    found = gradients()
    leaky = nn.functional.leaky_relu
    monkeypatch.setattr(pix2pix.F, "leaky_relu", lambda h, slope, inplace: leaky(h, slope))
    monkeypatch.setattr(torch.Tensor, "relu_", torch.Tensor.relu)
    for mine, plain in zip(found, gradients(), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-12)


def test_without_a_condition_it_says_so():
    for net in pair(16, width=2):
        with pytest.raises(DataError, match="pix2pix needs an input image as condition"):
            net(noise(1, 16))
