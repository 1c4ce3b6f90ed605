"""Self-attention against its plainest form, in float64."""

import torch

from paragan.layers.attention import SelfAttention


def naive(net: SelfAttention, x_BCHW: torch.Tensor) -> torch.Tensor:
    """Place by place: weights over all 2x2 maxima, and what they collect."""
    query, key, value = (
        torch.einsum("oc,bchw->bohw", layer.weight[:, :, 0, 0], x_BCHW) for layer in (net.query, net.key, net.value)
    )
    key, value = (part.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax((3, 5)).flatten(2) for part in (key, value))
    out = x_BCHW.clone()
    batch, _, height, width = x_BCHW.shape
    for b in range(batch):
        for i in range(height):
            for j in range(width):
                scores = torch.stack([(query[b, :, i, j] * key[b, :, m]).sum() for m in range(key.shape[2])])
                share = scores.exp() / scores.exp().sum()
                seen = sum(share[m] * value[b, :, m] for m in range(key.shape[2]))
                out[b, :, i, j] += net.gain * (net.out.weight[:, :, 0, 0] @ seen)
    return out


def made(gain: float) -> tuple[SelfAttention, torch.Tensor]:
    torch.manual_seed(0)
    net = SelfAttention(16).double()
    net.gain.data.fill_(gain)
    return net, torch.randn(2, 16, 4, 6, dtype=torch.float64)


def test_it_is_the_papers():
    net, x = made(0.7)
    torch.testing.assert_close(net(x), naive(net, x), rtol=1e-12, atol=1e-12)
    assert (net(x) - x).abs().max() > 0.01


def test_it_starts_as_nothing():
    net, x = made(0.0)
    assert torch.equal(SelfAttention(16).double()(x), x) and torch.equal(net(x), x)


def test_first_and_second_gradients():
    net, x = made(0.5)
    x = x[:1, :, :2, :2].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(net, (x,)) and torch.autograd.gradgradcheck(net, (x,))
