"""FastGAN and its reconstruction against plain versions in float64."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan import build
from paragan.augment import diffaugment
from paragan.config import read_recipe
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.layers.blocks import run_blocks
from paragan.layers.init import initialise
from paragan.layers.quarters import take_quarter
from paragan.layers.update_once import hold_updates
from paragan.loading.loader import Loader
from paragan.models import fastgan
from paragan.models._style import Noise
from paragan.penalties import reconstruction
from tests import one_turn
from tests.marks import slow

SIZES = [(size, size) for size in (64, 128, 224, 256, 512, 1024)] + [(96, 160)]


def network(side: str, size: int, classes: int = 0, *, width: int = 8, colours: int = 3, **more) -> nn.Module:
    kind = getattr(fastgan, side)
    options = fastgan.Options(width=width, latent=6, conditional=classes > 0, **more)
    net = hold_updates(kind(options, (colours, size, size), classes).double())
    initialise(net, 0, side)
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            parameter.add_(noise, alpha=0.1)
    return net


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_norm(norm: nn.Module, h: Tensor) -> Tensor:
    """Batch norm of a training batch, channel by channel."""
    mean = h.mean((0, 2, 3), keepdim=True)
    deviation = (h - mean).square().mean((0, 2, 3), keepdim=True).add(1e-5).sqrt()
    return (h - mean) / deviation * norm.gain[:, None, None] + norm.bias[:, None, None]


def gated(gate: nn.Module, h: Tensor, noise: float = 0.0) -> Tensor:
    h = plain_norm(gate.norm, h + noise)
    half = h.shape[1] // 2
    return h[:, :half] * torch.sigmoid(h[:, half:])


def doubled(h: Tensor) -> Tensor:
    return h.repeat_interleave(2, 2).repeat_interleave(2, 3)


def plain_excitation(excite: nn.Module, small: Tensor, large: Tensor) -> Tensor:
    """Mean over 4x4 cells, all cells to one vector, swish, one more product, sigmoid: factors of channels."""
    side = small.shape[2] // 4
    cells = small.unflatten(3, (4, side)).unflatten(2, (4, side)).mean((3, 5))
    h = torch.einsum("bcij,ocij->bo", cells, excite.gather.weight)
    factors = torch.sigmoid((h * torch.sigmoid(h)) @ excite.scale.weight[:, :, 0, 0].T)
    return large * factors[:, :, None, None]


def plain_images(g: nn.Module, z: Tensor) -> Tensor:
    """G map by map; the fourth map before an excited one excites it."""
    start, *stages, last = g.blocks
    maps = [gated(start.gate, torch.einsum("bz,zcij->bcij", z, start.conv.weight))]
    for stage in stages:
        h = doubled(maps[-1])
        for conv, gate in zip(stage.convs, stage.gates, strict=True):
            h = gated(gate, F.conv2d(h, conv.weight, padding=1))
        maps.append(h if stage.excite is None else plain_excitation(stage.excite, maps[len(maps) - 4], h))
    return F.conv2d(maps[-1], last.image.conv.weight, padding=1).tanh()


def plain_logits(d: nn.Module, x: Tensor) -> Tensor:
    """The trunk, mean of two paths at each halving, and the small branch; patches in one row."""
    act = lambda h: torch.where(h > 0, h, 0.2 * h)  # noqa: E731
    start, *downs, head = d.blocks
    maps = [act(F.conv2d(x, start.layers[0].weight, padding=1))]
    for down in downs:
        h = act(plain_norm(down.main[1], F.conv2d(maps[-1], down.main[0].weight, stride=2, padding=1)))
        h = act(plain_norm(down.main[4], F.conv2d(h, down.main[3].weight, padding=1)))
        short = F.conv2d(F.avg_pool2d(maps[-1], 2), down.direct[1].weight)
        h = (h + act(plain_norm(down.direct[2], short))) / 2
        maps.append(h if down.excite is None else plain_excitation(down.excite, maps[-3], h))
    hidden, norm, _, out = head.logits.layers
    logits = F.conv2d(act(plain_norm(norm, F.conv2d(maps[-1], hidden.weight))), out.weight)
    small = x[:, :, :: x.shape[2] // min(128, x.shape[2]), :: x.shape[3] // min(128, x.shape[3])]
    convs = [layer for layer in head.branch if isinstance(layer, nn.Conv2d)]
    norms = [None, *(layer for layer in head.branch if hasattr(layer, "gain"))]
    for conv, norm in zip(convs, norms, strict=True):
        small = F.conv2d(small, conv.weight, stride=2, padding=1)
        small = act(small if norm is None else plain_norm(norm, small))
    others = F.conv2d(small, head.small_logits.layers[0].weight)
    return torch.cat([logits.flatten(1), others.flatten(1)], 1)


@pytest.mark.parametrize("size", [16, 64, slow(256)])
def test_generator_equals_the_plain_version(size):
    g = network("Generator", size, noise=False)
    z = draws(2, 6)
    torch.testing.assert_close(g(z), plain_images(g, z), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("size", [16, 64, slow(256)])
def test_discriminator_equals_the_plain_version(size):
    d = network("Discriminator", size)
    x = draws(2, 3, size, size).tanh()
    torch.testing.assert_close(d(x).logits_B, plain_logits(d, x), rtol=1e-10, atol=1e-11)
    assert d(x).logits_B.shape == (2, 50)  # two maps of 8x8 under a window of 4x4


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_maps_and_decoded_images_at_every_size(size):
    """On the meta device, full width: images, patches, and decoded images of at most 128 px of the shorter side."""
    shape = (3, *size)
    with torch.device("meta"):
        g = fastgan.Generator(fastgan.Options(), shape)
        d = fastgan.Discriminator(fastgan.Options(), shape)
        assert g(torch.empty(2, 256)).shape == (2, *shape)
        decoded = d(torch.empty(2, *shape), None, torch.zeros(2, dtype=torch.int64)).layers
    most = max(1, 2 ** (min(size).bit_length() - 8))  # 1 for less than 256 px, 2 for less than 512 px, …
    whole = tuple(side // most for side in size)
    part = tuple(side // max(2, most) for side in size)
    assert [tuple(image.shape) for image in decoded] == [(2, 3, *whole), (2, 3, *whole), (2, 3, *part)]


def test_excitation_scales_channels_and_is_between_nought_and_one():
    excite = fastgan.Excitation(4, 5, (4, 4)).double()
    small, large = draws(3, 4, 8, 8), draws(3, 5, 16, 16, seed=1)
    factors = excite(small, large) / large
    torch.testing.assert_close(factors, factors[:, :, :1, :1].expand_as(factors))
    assert factors.min() > 0 and factors.max() < 1
    torch.testing.assert_close(excite(small, large), plain_excitation(hold_updates(excite), small, large))


def test_noise_is_drawn_in_training_and_fixed_in_evaluation():
    g = network("Generator", 32)
    z = draws(2, 6)
    assert not torch.equal(g(z), g(z))
    g.eval()
    assert torch.equal(g(z), g(z))
    assert sum(isinstance(module, Noise) for module in g.modules()) == 4  # two in every other block
    assert not any(isinstance(module, Noise) for module in network("Generator", 32, noise=False).modules())


@pytest.mark.parametrize("part", range(4))
def test_quarter_is_that_of_its_number(part):
    x = draws(3, 2, 6, 10)
    rows = slice(0, 3) if part < 2 else slice(3, 6)
    columns = slice(0, 5) if part % 2 == 0 else slice(5, 10)
    assert torch.equal(take_quarter(x, torch.full((3,), part)), x[:, :, rows, columns])


def test_quarters_are_taken_row_by_row():
    x, part_B = draws(8, 2, 4, 4), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])
    rows = [take_quarter(x[n : n + 1], part_B[n : n + 1]) for n in range(8)]
    assert torch.equal(take_quarter(x, part_B), torch.cat(rows))


@pytest.mark.parametrize("size", [8, 16, 64])
def test_reconstruction_is_the_mean_difference_of_resized_images(size):
    d = network("Discriminator", size).eval()
    x, part_B = draws(4, 3, size, size).tanh(), torch.tensor([2, 0, 3, 1])
    decoded = d(x, None, part_B).layers
    expected = []
    for row in range(4):
        top, left = (size // 2) * (int(part_B[row]) // 2), (size // 2) * (int(part_B[row]) % 2)
        quarter = x[row, :, top : top + size // 2, left : left + size // 2]
        targets = (x[row], x[row], quarter)
        total = 0.0
        for image, target in zip(decoded, targets, strict=True):
            every = target.shape[1] // image.shape[2]
            total += (image[row] - target[:, ::every, ::every]).abs().mean()
        expected.append(total)
    found = reconstruction.reconstruction_loss(decoded, x, part_B)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-13)


def test_penalty_is_the_plain_loss_of_the_augmented_images_with_a_quarter_drawn_by_row():
    """Also its gradients; each row draws the quarter of its number in the global batch."""
    made = reconstruction.Penalty(reconstruction.Options(weight=0.7))
    pair = one_turn.nets()
    pair[Side.D] = network("Discriminator", 8, one_turn.CLASSES, colours=1).eval()
    played = replace(one_turn.turn(Side.D, made), augment=diffaugment.Augment(diffaugment.Options()))
    feed = played.feed
    image, y_B = (feed.real.tensors[name] for name in ("image", "label"))
    x = played.augment(image, feed.seed, "augment/d/real", feed.rows)
    part_B = (4 * rng.uniform(feed.seed, "reconstruction", feed.rows, ())).long()
    assert len(part_B.unique()) > 1
    for parts in (1, 3):
        loss_B = 0.7 * reconstruction.reconstruction_loss(pair[Side.D](x, y_B, part_B).layers, x, part_B)
        one_turn.assert_plain(played, pair, loss_B, parts)


@pytest.mark.parametrize("name", ["sngan", "dcgan"])
def test_penalty_refuses_a_discriminator_without_decoders(name):
    words = [f"model={{name: {name}, width: 4, latent: 8}}", "penalties=[reconstruction]", "data.size=8"]
    config = read_recipe("digits", [*words, "train.batch=4"])
    data = build.open_data(config)
    game = build.gan(config, data, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"^penalty reconstruction needs a D with decoders; set model\.name=fastgan"):
        build.scheme(config).step(game, Loader(data.train, 4, 0, torch.device("cpu")))


def test_quarter_decoder_reads_its_quarter_of_the_map_alone():
    d = network("Discriminator", 32).eval()
    x = draws(4, 3, 32, 32).tanh()
    head = d.blocks[-1]
    _, _, maps = run_blocks(d.blocks[:-1], x)
    for part in range(4):
        of_part = d(x, None, torch.full((4,), part)).layers[2]
        expected = head.decoders[2](take_quarter(maps[-2], torch.full((4,), part)))
        torch.testing.assert_close(of_part, expected)


def test_labels_add_one_number_to_every_patch():
    d = network("Discriminator", 16, classes=3).eval()
    x = draws(3, 3, 16, 16).tanh()
    a, b = (d(x, torch.full((3,), label)).logits_B for label in (0, 1))
    of_trunk = (a - b)[:, :25]
    torch.testing.assert_close(of_trunk, of_trunk[:, :1].expand_as(of_trunk))
    assert of_trunk.abs().min() > 1e-6 and torch.equal(a[:, 25:], b[:, 25:])


def test_gated_norm_equals_glu_of_torch_and_keeps_channels_last():
    """A gradient of another layout makes torch's batch norm five times slower on a CPU."""
    torch.manual_seed(0)
    gate = fastgan.GatedNorm(3).double()
    h = torch.randn(2, 6, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    weights = torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last)
    layouts = []
    gate.norm.register_forward_hook(lambda module, inputs, output: output.register_hook(layouts.append) and None)
    values = gate(h)
    (gradient,) = torch.autograd.grad((values * weights).sum(), h)
    assert layouts[0].is_contiguous(memory_format=torch.channels_last)
    expected = F.glu(F.batch_norm(h, None, None, gate.norm.gain, gate.norm.bias, training=True), 1)
    assert torch.allclose(values, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(gradient, torch.autograd.grad((expected * weights).sum(), h)[0], rtol=1e-10, atol=1e-12)
