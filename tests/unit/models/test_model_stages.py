"""Attention by resolution; widths of every stage."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.layers.attention import SelfAttention
from paragan.layers.blocks import ReluHead
from paragan.layers.resample import blur, upsample
from paragan.layers.update_once import hold_updates
from paragan.models import r3gan
from tests.unit.models.test_models import SIDES, on_meta


def sides_of_attention(net: nn.Module, *inputs) -> list[int]:
    """The sides of the maps that attention is called with, in order."""
    found = []
    for module in net.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_pre_hook(lambda _, given: found.append(given[0].shape[-1]))
    hold_updates(net)  # power iterations are slow on the meta device
    net(*inputs)
    return found


NEAR = "width: 8, latent: 12"
PLACES = {
    "default": ([16], [16]),
    "null": ([], []),
    "[]": ([], []),
    "8": ([8], [8]),
    "{g: 4}": ([4], []),
    "[8, 16]": ([8, 16], [16, 8]),
    "{g: 32}": ([32], []),
    "{d: 8}": ([], [8]),
    "{g: [16, 32], d: [16, 8]}": ([16, 32], [16, 8]),
}


@pytest.mark.parametrize(("attention", "places"), PLACES.items(), ids=str)
@pytest.mark.parametrize(("name", "more"), [("sagan", ""), ("biggan", ""), ("biggan", ", shared: 0")])
def test_attention_is_where_it_is_placed(name, more, attention, places):
    words = f"{NEAR}, attention: {attention}{more}"
    g, d = (on_meta(name, side, (3, 32, 32), 3, words) for side in SIDES)
    y = torch.zeros(2, dtype=torch.int64, device="meta")
    assert sides_of_attention(g, torch.empty(2, g.latent, device="meta"), y) == places[0]
    assert sides_of_attention(d, torch.empty(2, 3, 32, 32, device="meta"), y) == places[1]


ATTENTION = [
    *[(name, 32, 16, 16) for name in ("biggan_deep", "contragan", "reacgan")],
    ("biggan_deep", 64, 64, 32),
    ("biggan_deep", 256, 64, 64),
]


@pytest.mark.parametrize(("name", "size", "of_g", "of_d"), ATTENTION)
def test_attention_of_other_models_is_at_half_the_image_or_64_px(name, size, of_g, of_d):
    words = NEAR if size == 32 else "width: 8"
    g, d = (on_meta(name, side, (3, size, size), 3, words) for side in SIDES)
    y = torch.zeros(2, dtype=torch.int64, device="meta")
    assert sides_of_attention(g, torch.empty(2, g.latent, device="meta"), y) == [of_g]
    assert sides_of_attention(d, torch.empty(2, 3, size, size, device="meta"), y) == [of_d]


@pytest.mark.parametrize("name", ["sagan", "biggan"])
def test_attention_on_a_map_that_is_not_there_is_refused(name):
    message = (
        "^model.attention: D has no map of 64x64; use one of .*8, 16, 32 .model.attention.d=SIDE., or null for none$"
    )
    for side in SIDES:
        with pytest.raises(ConfigError, match=message):
            on_meta(name, side, (3, 64, 64), 10, "attention: 64")
        with pytest.raises(ConfigError, match=r"^model.attention: G has no map of 24x24"):
            on_meta(name, side, (3, 64, 64), 10, "attention: {g: 24}")


def test_attention_is_read_from_settings():
    for words, value in (
        ("model.attention=8", 8),
        ("model.attention=[8,16]", (8, 16)),
        ("model.attention={g: 8, d: [4]}", {"g": 8, "d": (4,)}),
        ("model.attention.d=8", {"d": 8}),
        ("model.attention=null", None),
    ):
        assert read_recipe("digits", ["model=sagan", words]).model.options.attention == value
    for wrong in ("false", "0", "all", "{x: 8}", "8.5"):
        with pytest.raises(ConfigError, match=r"model.attention: must be default or an integer >= 1 or a list"):
            read_recipe("digits", ["model=sagan", f"model.attention={wrong}"])


def test_r3gan_has_the_widths_of_every_map():
    """D has them in reverse; another number of widths is refused."""
    words = "groups: 1, g_widths: [32, 16, 16, 8]"
    g, d = (on_meta("r3gan", side, (3, 32, 32), 3, words) for side in SIDES)
    y = torch.zeros(2, dtype=torch.int64, device="meta")
    last = []
    for net in (g, d):
        for stage in net.blocks[1:-1]:
            stage.register_forward_hook(lambda _, given, out: last.append(out.shape[1]))
    assert g(torch.empty(2, g.latent, device="meta"), y).shape == (2, 3, 32, 32)
    d(torch.empty(2, 3, 32, 32, device="meta"), y)
    assert last == [32, 16, 16, 8, 8, 16, 16, 32]
    for side in SIDES:
        with pytest.raises(ConfigError, match=r"^model.g_widths: 2 widths for 4 maps; give one width for each, as in"):
            on_meta("r3gan", side, (3, 32, 32), 3, "g_widths: [8, 8]")


@pytest.mark.parametrize("resample", ["up", "down"])
def test_r3gan_changes_channels_between_resolutions(resample):
    """Equal to the plain order of the authors: change, then up; down, then change."""
    stage = r3gan.Stage(3, 5, [r3gan.Residual(5, 1, 1.0)], resample).double()
    nn.init.zeros_(stage.blocks[0].narrow.weight)  # the residual block starts as nothing
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    plain = F.conv2d(x, stage.change.weight)
    plain = upsample(plain) if resample == "up" else blur(plain, 1, 1, stride=2)
    torch.testing.assert_close(stage(x), plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("name", ["sngan", "sagan", "biggan", "biggan_deep"])
def test_discriminators_end_at_maps_of_four_pixels(name, size):
    """As in the papers' tables and the authors' code; numbers of parameters do not show it."""
    d = on_meta(name, SIDES[1], (3, size, size), 3, "width: 8")
    (head,) = [module for module in d.modules() if isinstance(module, ReluHead)]
    maps = []
    head.register_forward_pre_hook(lambda _, inputs: maps.append(tuple(inputs[0].shape[2:])))
    hold_updates(d)
    d(torch.empty(2, 3, size, size, device="meta"), torch.zeros(2, dtype=torch.int64, device="meta"))
    assert maps == [(4, 4)]
