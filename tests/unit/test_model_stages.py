"""Attention by resolution; widths and blocks of every stage."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.layers.attention import SelfAttention
from paragan.layers.resample import downsample, upsample
from paragan.models import r3gan
from tests.unit.test_models import SIDES, on_meta


def sides_of_attention(net: nn.Module, *inputs) -> list[int]:
    """The sides of the maps that attention is called with, in order."""
    found = []
    for module in net.modules():
        if isinstance(module, SelfAttention):
            module.register_forward_pre_hook(lambda _, given: found.append(given[0].shape[-1]))
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
@pytest.mark.parametrize(
    ("name", "more"), [("sagan", ""), ("biggan", ""), ("biggan", ", shared: 0"), ("biggan_deep", ""), ("reacgan", "")]
)
def test_attention_is_where_it_is_placed(name, more, attention, places):
    words = f"{NEAR}, attention: {attention}{more}"
    g, d = (on_meta(name, side, (3, 32, 32), 3, words) for side in SIDES)
    y = torch.zeros(2, dtype=torch.int64, device="meta")
    assert sides_of_attention(g, torch.empty(2, g.latent, device="meta"), y) == places[0]
    assert sides_of_attention(d, torch.empty(2, 3, 32, 32, device="meta"), y) == places[1]


@pytest.mark.parametrize("name", ["sagan", "biggan", "biggan_deep"])
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


@pytest.mark.parametrize("name", ["sngan", "sagan", "biggan", "biggan_deep", "contragan", "r3gan"])
def test_widths_of_every_map(name):
    """Both networks are as wide as they say; another number of widths is refused."""
    known = {field.name for field in dataclasses.fields(registry.options("models", name))}
    words = "g_widths: [32, 16, 16, 8], d_widths: [8, 8, 16, 24]"
    words += ", groups: 1" * ("groups" in known) + ", attention: null" * ("attention" in known)
    g, d = (on_meta(name, side, (3, 32, 32), 3, words) for side in SIDES)
    y = torch.zeros(2, dtype=torch.int64, device="meta")
    last = []
    g.blocks[-1].register_forward_pre_hook(lambda _, given: last.append(given[0]))
    d.blocks[-1].register_forward_pre_hook(lambda _, given: last.append(given[0]))
    assert g(torch.empty(2, g.latent, device="meta"), y).shape == (2, 3, 32, 32)
    d(torch.empty(2, 3, 32, 32, device="meta"), y)
    maps = [given[0] if isinstance(given, tuple) else given for given in last]
    assert [h.shape[1] for h in maps] == [8, 24]
    for key, side in (("g_widths", "Generator"), ("d_widths", "Discriminator")):
        with pytest.raises(ConfigError, match=f"^model.{key}: 2 widths for 4 maps; give one width for each, as in"):
            on_meta(name, side, (3, 32, 32), 3, f"{key}: [8, 8]")


def test_biggan_deep_refuses_widths_that_its_short_cuts_cannot_have():
    for key, side, widths in (("g_widths", "Generator", [8, 16]), ("d_widths", "Discriminator", [16, 8, 8])):
        with pytest.raises(ConfigError, match=rf"^model.{key}: short-cuts .* or model.flavour=studio$"):
            on_meta("biggan_deep", side, (3, 8, 8), 3, f"{key}: {widths}, attention: null")
        assert on_meta("biggan_deep", side, (3, 8, 8), 3, f"{key}: {widths}, attention: null, flavour: studio")


def test_r3gan_takes_blocks_for_every_resolution():
    words = "width: 8, groups: 4, blocks: [1, 2, 3]"
    g, d = (on_meta("r3gan", side, (3, 16, 16), 3, words) for side in SIDES)
    assert [len(stage.blocks) for stage in g.blocks[1:-1]] == [1, 2, 3]
    assert [len(stage.blocks) for stage in d.blocks[1:-1]] == [3, 2, 1]
    with pytest.raises(ConfigError, match=r"^model.blocks: 3 numbers for 4 resolutions; give one number, or 4$"):
        on_meta("r3gan", "Generator", (3, 32, 32), 3, words)


@pytest.mark.parametrize("resample", ["up", "down"])
def test_r3gan_changes_channels_between_resolutions(resample):
    """Equal to the plain order of the authors: change, then up; down, then change."""
    stage = r3gan.Stage(3, 5, [r3gan.Residual(5, 1, 1.0)], resample).double()
    nn.init.zeros_(stage.blocks[0].narrow.weight)  # the residual block starts as nothing
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    plain = F.conv2d(x, stage.change.weight)
    plain = upsample(plain) if resample == "up" else downsample(plain)
    torch.testing.assert_close(stage(x), plain, rtol=1e-12, atol=1e-12)
