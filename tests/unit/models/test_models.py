"""What single models promise: refusals with a remedy, options of their own. Sizes: test_parameter_counts.py."""

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput
from paragan.layers.blocks import identity_wrap
from paragan.layers.init import initialise
from paragan.layers.update_once import hold_updates, mixes_samples
from paragan.models import biggan, biggan_deep, dcgan, r3gan, sngan
from paragan.models._checks import MapSizes, map_sizes
from paragan.models._vector import vector_norm
from tests.marks import slow

SIDES = ("Generator", "Discriminator")
X, Y = torch.linspace(-1, 1, 4 * 64).reshape(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])


def on_meta(name: str, side: str, shape: tuple[int, int, int], classes: int, more: str = "") -> nn.Module:
    """The network, with options of the class that a config has, which is not the file's own."""
    file = registry.load_module("models", name)
    options = registry.options("models", name)
    with torch.device("meta"):
        wanted = yaml.safe_load(f"{{{more}}}")
        return getattr(file, side)(options(conditional=classes > 0, **wanted), shape, classes)


@pytest.mark.parametrize("size", [8, 1024])
@pytest.mark.parametrize("name", ["biggan", slow("biggan_deep"), "contragan", "reacgan", "stylegan2"])
def test_smallest_and_largest_images_pass_through_both_networks(name, size):
    """In full width, without values."""
    g, d = (on_meta(name, side, (3, size, size), 5) for side in SIDES)
    y_B = torch.zeros(2, dtype=torch.int64, device="meta")
    x_BCHW = g(torch.zeros(2, g.latent, device="meta"), y_B)
    assert x_BCHW.shape == (2, 3, size, size)
    assert DiscriminatorOutput.of(d(x_BCHW, y_B)).logits_B.shape == (2,)


def test_sngan_normalises_every_weight_of_d_and_sums_what_is_not_negative():
    net = sngan.Discriminator(sngan.Options(width=4), (1, 8, 8), 3)
    assert all("parametrizations" in where for where, p in net.named_parameters() if p.dim() > 1)
    assert (net(X, Y).features >= 0).all()


def test_dcgan_grows_at_most_sixteenfold():
    net = on_meta("dcgan", "Generator", (3, 128, 128), 0)
    assert max(p.shape[0] for p in net.parameters() if p.dim() == 4) == 16 * dcgan.Options().width


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 16), (3, 24, 40)])
def test_dcgan_embeds_the_class_at_its_smallest_map(shape):
    def generator(embeds: bool, classes: int = 3) -> nn.Module:
        options = dcgan.Options(width=4, conditional=classes > 0, class_embedding=embeds)
        return dcgan.Generator(options, shape, classes).double()

    plain, embedded = generator(False), generator(True)
    missing, unexpected = embedded.load_state_dict(plain.state_dict(), strict=False)
    assert (missing, unexpected) == (["blocks.0.embed.weight"], [])
    z_BZ, y_B = torch.randn(4, 128, dtype=torch.float64), torch.tensor([2, 0, 1, 2])
    before = plain.blocks[0](z_BZ, y_B)
    expected = before + embedded.blocks[0].embed.weight[y_B].reshape(before.shape)
    torch.testing.assert_close(embedded.blocks[0](z_BZ, y_B), expected)
    assert generator(True, classes=0).state_dict().keys() == generator(False, classes=0).state_dict().keys()


@pytest.mark.parametrize("norm", ["batch", "spectral", "none"])
def test_dcgan_norms(norm):
    net = dcgan.Discriminator(dcgan.Options(width=4, d_norm=norm, conditional=True), (1, 8, 8), 3)
    assert mixes_samples(net) == (norm == "batch")
    names = [where for where, _ in net.named_parameters()]
    assert any("parametrizations" in where for where in names) == (norm == "spectral")
    assert net(X, Y).logits_B.isfinite().all()


def test_a_latent_that_cannot_be_shared_out_is_refused():
    told = r"^model.latent=81 cannot be divided .*; pass a multiple of 4, such as model.latent=84$"
    with pytest.raises(ConfigError, match=told):
        on_meta("biggan", "Generator", (3, 32, 32), 10, "latent: 81")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("name", "width"), [("sagan", 3), ("biggan", 3), ("biggan_deep", 3)])
def test_a_width_that_does_not_divide_is_refused(name, side, width):
    with pytest.raises(ConfigError, match=r"^model.width: attention has \d+ channels, which must be a multiple of 8"):
        on_meta(name, side, (3, 32, 32), 10, f"width: {width}")
    if name != "biggan_deep":
        assert on_meta(name, side, (3, 32, 32), 10, f"width: {width}, attention: null")


def test_every_block_of_biggan_sees_its_own_part_of_z():
    """From the image back: a part of z that only block k reads moves nothing before block k."""
    net = biggan.Generator(biggan.Options(width=8, latent=12, attention=None), (3, 32, 32), 3).double()
    initialise(net, 0, "g")
    hold_updates(net)
    z, y, seen = torch.randn(4, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 0]), []
    for block in net.blocks:
        block.register_forward_hook(lambda m, given, out: seen.append(out[0] if isinstance(out, tuple) else out))
    net(z, y)
    before = list(seen)
    for part in range(4):
        seen.clear()
        moved = z.clone()
        moved[:, 3 * part : 3 * part + 3] += 1
        net(moved, y)
        assert [torch.equal(a, b) for a, b in zip(before, seen, strict=True)][: part + 1] == [True] * part + [False]


def test_the_short_cuts_of_biggan_deep():
    """Where the bottleneck gives nothing, what comes out is x itself: without its last channels, or with more of it."""
    down = biggan_deep.DownNeck(8, 12, True, identity_wrap).double()
    up = biggan_deep.UpNeck(8, 4, True, vector_norm(5, identity_wrap), identity_wrap).double()
    for block in (down, up):
        nn.init.zeros_(block.conv4.weight), nn.init.zeros_(block.conv4.bias)
    x, c = torch.randn(2, 8, 6, 6, dtype=torch.float64), torch.randn(2, 5, dtype=torch.float64)
    small, large = down(x), up(x, c)
    assert small.shape == (2, 12, 3, 3) and large.shape == (2, 4, 12, 12)
    assert torch.equal(small[:, :8], F.avg_pool2d(x, 2))
    assert torch.equal(large, F.interpolate(x[:, :4], scale_factor=2))


def test_g_is_normalised_too():
    for name in ("sagan", "biggan", "biggan_deep"):
        net = on_meta(name, "Generator", (3, 32, 32), 10)
        plain_ones = [n for n, p in net.named_parameters() if p.dim() > 1 and "parametrizations" not in n]
        assert all("embed" in n or "norm" in n for n in plain_ones), plain_ones  # tables of classes are not


def test_groups_that_do_not_divide_are_refused():
    message = r"^model.groups=96 does not divide 200 channels \(twice the widest map\); pass model.groups=50$"
    with pytest.raises(ConfigError, match=message):
        on_meta("r3gan", "Discriminator", (3, 32, 32), 10, "width: 100")
    with pytest.raises(ConfigError, match=r"^model.groups: 3 groups of the widest map, of 6 channels, leave no whole"):
        on_meta("r3gan", "Generator", (3, 8, 8), 10, "groups: 3, g_widths: [6, 5]")


def test_r3gan_starts_as_fix_up_says():
    """Blocks do nothing yet; the others are drawn smaller the more blocks there are."""
    net = r3gan.Discriminator(r3gan.Options(width=64, groups=8), (3, 32, 32), 10)
    initialise(net, 0, "d")
    hold_updates(net)
    blocks = [module for module in net.modules() if isinstance(module, r3gan.Residual)]
    assert len(blocks) == 8 and not any(block.narrow.weight.any() for block in blocks)
    for layer, fan_in in ((blocks[0].widen, 64), (blocks[0].see, 16 * 9)):
        expected = 8**-0.25 * (2 / 1.04 / fan_in) ** 0.5
        assert abs(float(layer.weight.detach().std()) / expected - 1) < 0.05
    assert not any(p.any() for name, p in net.named_parameters() if "bias" in name)


@pytest.mark.parametrize(
    ("size", "lowest", "doublings"),
    [((48, 48), (6, 6), 3), ((64, 68), (16, 17), 2), ((136, 128), (17, 16), 3), ((132, 64), (33, 16), 2)],
)
def test_map_sizes_are_doubled_as_often_as_both_sides_allow(size, lowest, doublings):
    assert map_sizes((3, *size)) == MapSizes(lowest, doublings)


@pytest.mark.parametrize(("size", "multiple"), [((100, 100), 8), ((68, 68), 8), ((132, 132), 16)])
def test_map_sizes_refuse_sides_whose_smallest_map_would_be_above_16(size, multiple):
    with pytest.raises(ConfigError, match=f"not a multiple of {multiple},"):
        map_sizes((3, *size))
