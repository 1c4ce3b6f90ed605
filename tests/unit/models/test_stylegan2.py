"""StyleGAN2's pieces against the plainest forms of its equations, in float64; its sizes: test_parameter_counts.py."""

import pytest
import torch
import torch.nn.functional as F

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.types import Rows, Side
from paragan.layers.blocks import run_blocks
from paragan.layers.equalised import EqualConv2d, EqualLinear
from paragan.layers.init import initialise
from paragan.layers.minibatch_std import MinibatchStd
from paragan.layers.random import uses_random_numbers
from paragan.layers.resample import blur
from paragan.models import stylegan2
from paragan.models._style import ModulatedConv2d
from paragan.penalties import path_length
from tests.one_turn import BATCH, CLASSES, OPTIONS, SEED, SHAPE, nets, play, turn

SMALL = {"latent": OPTIONS.latent, "style": 4, "mapping": 2, "width": 5, "base": 40, "mixing": 0.0, "noise": False}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def generator(classes: int = CLASSES, **wanted) -> stylegan2.Generator:
    net = stylegan2.Generator(stylegan2.Options(**{**SMALL, **wanted}), SHAPE, classes)
    initialise(net.double(), SEED, "g")
    return net


FILTER = torch.outer(*[torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=torch.float64) / 8] * 2)


def filtered(x, before, after):
    """Every channel by itself, with the 4x4 filter."""
    padded = F.pad(x, (before, after, before, after)).flatten(0, 1).unsqueeze(1)
    return F.conv2d(padded, FILTER[None, None]).unflatten(0, x.shape[:2]).squeeze(2)


@pytest.mark.parametrize(("before", "after", "stride"), [(1, 1, 1), (2, 2, 1), (1, 1, 2), (2, 1, 1)])
def test_blurred_is_a_filter(before, after, stride):
    x = normal(2, 3, 8, 6)
    expected = filtered(x, before, after)[..., ::stride, ::stride]
    torch.testing.assert_close(blur(x, before, after, stride), expected, rtol=1e-12, atol=1e-12)


def modulated_by_hand(x, weight, style, up):
    """Equations 1 and 3: every image has weights of its own; up: zeros between pixels, convolution, filter times 4."""
    made = []
    for image, scales in zip(x, style, strict=True):
        own = weight * scales[None, :, None, None]
        own = own / (own.square().sum((1, 2, 3), keepdim=True) + 1e-8).sqrt()
        if up:
            spread = image.new_zeros(1, len(image), 2 * image.shape[1] - 1, 2 * image.shape[2] - 1)
            spread[0, :, ::2, ::2] = image
            made.append(4 * filtered(F.conv2d(spread, own.flip(2, 3), padding=2), 1, 1)[0])
        else:
            made.append(F.conv2d(image[None], own, padding=1)[0])
    return torch.stack(made)


@pytest.mark.parametrize("up", [False, True])
def test_modulation_is_that_of_weights(up):
    conv = ModulatedConv2d(3, 4, up=up).double()
    x, style = normal(2, 3, 5, 5).requires_grad_(), normal(2, 3, seed=1).requires_grad_()
    y, norm = conv(x, style, gain=1.5)
    expected = 1.5 * modulated_by_hand(x, conv.weight, style, up)
    torch.testing.assert_close(y * norm, expected, rtol=1e-10, atol=1e-10)
    found, wanted = (torch.autograd.grad(z.pow(3).sum(), (x, style, conv.weight)) for z in (y * norm, expected))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_modulation_has_second_derivatives():
    conv = ModulatedConv2d(2, 2, up=True).double()

    def call(x, style):
        y, norm = conv(x, style)
        return y * norm

    inputs = (normal(1, 2, 3, 3).requires_grad_(), normal(1, 2, seed=1).requires_grad_())
    assert torch.autograd.gradgradcheck(call, inputs)


def test_equalised_layers_scale_what_they_use():
    x = normal(2, 6)
    linear = EqualLinear(6, 3, rate=0.01, start=1.0, gain=2.0).double()
    assert linear.weight.std() > 30 and linear.bias.tolist() == [100.0] * 3
    expected = 2 * (x @ (linear.weight * 0.01 / 6**0.5).T + 0.01 * linear.bias)
    torch.testing.assert_close(linear(x), expected, rtol=1e-12, atol=1e-12)
    conv = EqualConv2d(2, 3, 3, halves=True, bias=False).double()
    image = normal(1, 2, 7, 7)
    torch.testing.assert_close(conv(image), F.conv2d(image, conv.weight / 18**0.5, stride=2), rtol=1e-12, atol=1e-12)


def spread_by_hand(x, group):
    """Per group: the deviation over its images, averaged over everything else."""
    found = []
    for first in range(0, len(x), group):
        own = [image.flatten().tolist() for image in x[first : first + group]]
        columns = list(zip(*own, strict=True))
        means = [sum(column) / len(own) for column in columns]
        deviations = [
            (sum((value - mean) ** 2 for value in column) / len(own) + 1e-8) ** 0.5
            for column, mean in zip(columns, means, strict=True)
        ]
        found += [sum(deviations) / len(columns)] * len(own)
    return found


@pytest.mark.parametrize(("batch", "group"), [(8, 4), (6, 4), (3, 4), (5, 1)])
def test_minibatch_deviation(batch, group):
    x = normal(batch, 2, 3, 3)
    found = MinibatchStd(group)(x)
    assert torch.equal(found[:, :2], x) and found.shape == (batch, 3, 3, 3)
    assert all(torch.equal(channel, channel[0, 0].expand(3, 3)) for channel in found[:, 2])
    torch.testing.assert_close(found[:, 2, 0, 0].tolist(), spread_by_hand(x, group), rtol=1e-12, atol=1e-12)


def test_labels_and_latents_have_one_size():
    """Mapping takes z and the class at a mean square of 1, so z times a number is z."""
    net = generator()
    z, y = normal(4, OPTIONS.latent), torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(net(z, y), net(7 * z, y), rtol=1e-6, atol=1e-8)
    assert not torch.allclose(net(z, y), net(z, y.roll(1)))


def test_noise_is_drawn_in_training_and_fixed_else():
    net = generator(noise=True)
    assert uses_random_numbers(net) and not uses_random_numbers(generator())
    z, y = normal(3, OPTIONS.latent), torch.tensor([0, 1, 2])
    assert torch.equal(net(z, y), net(z, y))  # strengths start at 0
    for name, parameter in net.named_parameters():
        if name.endswith("strength"):
            parameter.data.fill_(0.5)
    assert not torch.equal(net(z, y), net(z, y))
    assert torch.equal(net.eval()(z, y), net(z, y))


def test_mixed_styles_are_those_of_another_latent_from_some_layer_on():
    net = generator(mixing=0.5)
    assert uses_random_numbers(net)
    z, y = normal(200, OPTIONS.latent), torch.zeros(200, dtype=torch.int64)
    torch.manual_seed(1)
    w_BLW, own_BW = net.blocks[0](z, y), net.blocks[0].style(z, y)
    same_BL = (w_BLW == own_BW[:, None]).all(2)
    first = same_BL.int().cumprod(1).sum(1)
    assert torch.equal(same_BL.sum(1), first) and int(first.min()) == 1  # own up to there, never after
    assert 70 < int((first < net.styles[0]).sum()) < 130
    assert torch.equal(net.eval().blocks[0](z, y), own_BW[:, None].expand_as(w_BLW))


@pytest.mark.parametrize("classes", [0, CLASSES])
def test_truncation_goes_towards_the_mean_of_the_class(classes):
    net = generator(classes, conditional=classes > 0).eval()
    z, y = normal(3, OPTIONS.latent), torch.tensor([2, 0, 2]) if classes else None
    assert torch.equal(net(z, y, net.truncation_shift(z, y, 1.0)), net(z, y))
    mapping = net.blocks[0]
    whole, half, none = (mapping.style(z, y) + net.truncation_shift(z, y, psi)[:, 0] for psi in (1.0, 0.5, 0.0))
    torch.testing.assert_close(half, (whole + none) / 2, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(none[0], none[2], rtol=1e-10, atol=1e-12)
    assert torch.allclose(none[0], none[1]) == (classes == 0)
    many = mapping.style(normal(20_000, OPTIONS.latent, seed=3), torch.full((20_000,), 2) if classes else None).mean(0)
    assert (none[0] - many).abs().max() < 0.1 * mapping.style(z, y).std()


@pytest.mark.parametrize(("classes", "layer"), [(0, 1), (CLASSES, 3)])
def test_mixing_takes_the_later_styles_of_the_other_latents(classes, layer):
    net = generator(classes, conditional=classes > 0).eval()
    z, other = normal(3, OPTIONS.latent), normal(3, OPTIONS.latent, seed=5)
    y = torch.tensor([2, 0, 2]) if classes else None
    own, others = (net.blocks[0].style(latents, y) for latents in (z, other))
    w_BLW = torch.stack([own] * layer + [others] * (net.styles[0] - layer), 1)
    mixed = net(z, y, net.mixing_shift(z, other, y, layer))
    torch.testing.assert_close(mixed, run_blocks(net.blocks[1:], w_BLW, y), rtol=1e-10, atol=1e-10)


def discriminator(**wanted) -> stylegan2.Discriminator:
    net = stylegan2.Discriminator(stylegan2.Options(**{**SMALL, **wanted}), SHAPE, CLASSES)
    initialise(net.double(), SEED, "d")
    return net


def of_size_one(rows):
    return [row / (row.square().mean() + 1e-8).sqrt() for row in rows]


def layer(linear, x):
    return linear.scales[0] * (linear.weight @ x) + linear.scales[1] * linear.bias


def test_heads_project_or_compare():
    """The label's vector goes through 8 layers and meets the features, or through one to a point of length 1."""
    x, y = normal(3, *SHAPE), [2, 0, 2]
    for kind, depth in (("projection", 8), ("contrast", 1)):
        net = discriminator(head=kind)
        logits_B, features = (verdict := net(x, torch.tensor(y))).logits_B, verdict.features
        head = net.blocks[-1].head
        found_BF = discriminator(conditional=False)(x).features if kind == "contrast" else features  # of equal weights
        towards = head.towards
        own = of_size_one(towards.embed.weight[number] / CLASSES**0.5 + towards.embed.bias for number in y)
        assert len(towards.layers) == depth
        for linear in towards.layers:
            own = [F.leaky_relu(layer(linear, row), 0.2) for row in own]
        for i, (seen, row) in enumerate(zip(found_BF, own, strict=True)):
            if kind == "contrast":
                torch.testing.assert_close(logits_B[i], layer(head.out, seen)[0], rtol=1e-10, atol=1e-12)
                for place, point in enumerate((layer(head.project, seen), row)):
                    torch.testing.assert_close(features[i, place], point / point.norm(), rtol=1e-10, atol=1e-12)
            else:
                expected = (layer(head.out, seen) * row).sum() / len(row) ** 0.5
                torch.testing.assert_close(logits_B[i], expected, rtol=1e-10, atol=1e-12)


def path_length_by_hand(net, z, y, noise, mean):
    """Equation 4 with the whole Jacobian: lengths per image, averaged over layers as mean squares."""
    lengths = []
    for i, own in enumerate(noise):
        shift = torch.zeros(1, *net.styles, dtype=torch.float64)

        def image(w, i=i):
            return net(z[i : i + 1], y[i : i + 1], w).flatten()

        jacobian = torch.autograd.functional.jacobian(image, shift, create_graph=True).squeeze(1)
        pulled = torch.einsum("p,plw->lw", own.flatten() / 64**0.5, jacobian)
        lengths.append(sum(row.square().sum() for row in pulled).div(len(pulled)).sqrt())
    mean = mean + 0.01 * (torch.stack(lengths).mean().detach() - mean)
    return [(length - mean).square() for length in lengths], mean


def test_path_length_is_the_papers():
    net = generator()
    pair = {**nets(), Side.G: net}
    penalty = path_length.Penalty(path_length.Options(weight=0.7, interval=3, every=2))
    penalty.state["mean"] = torch.tensor(0.3, dtype=torch.float64)
    mean = penalty.state["mean"].clone()
    for step in (4, 5):
        played = turn(Side.G, penalty, step=step)
        terms, grads = play(played, pair)
        feed = played.feed
        noise = rng.normal(SEED, "path_length", Rows(step=step, first=0, count=BATCH, total=BATCH), SHAPE).double()[::2]
        by_hand, mean = path_length_by_hand(net, feed.latent[::2], feed.label[::2], noise, mean)
        expected = [weight * value.item() for value in by_hand for weight in (2 * 0.7 * 3, 0)]
        torch.testing.assert_close(terms.loss_B["path_length"].tolist(), expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(penalty.state["mean"], mean, rtol=1e-12, atol=0)
        net.zero_grad()
        (sum(by_hand) * 2 * 0.7 * 3 / BATCH).backward()
        for name, parameter in net.named_parameters():
            wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(grads[name], wanted, rtol=1e-7, atol=1e-10, msg=name)
        assert grads["blocks.0.layers.0.weight"].abs().max() > 1e-8


def test_path_length_needs_styles():
    told = "^penalty path_length needs a generator with styles; use model stylegan2$"
    with pytest.raises(ConfigError, match=told):
        play(turn(Side.G, path_length.Penalty(path_length.Options())), nets())
