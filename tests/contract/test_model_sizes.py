"""Every model at every size: a step and R1 are finite; sizes in between are refused with the two nearest."""

import re

import pytest
import torch

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.outputs import DiscriminatorOutput, GeneratorOutput
from paragan.layers.init import initialise
from paragan.layers.update_once import begin_update, hold_updates
from tests.contract.small_networks import MODELS, SIDES, build, options
from tests.marks import slow

OTHERS = ["cyclegan", "real_esrgan", "vqgan"]  # that make images from images
LATER = [slow(n, n) for n in (12, 16, 24, 28, 32, 36, 40, 48, 64, 104, 128, 224)]
GROWN = [name for name in MODELS if name not in ("mlp", "flow_unet")]  # from a map of 4 px or more


def players(name, height, width):
    """G and D, what G is called with, and a batch of real samples."""
    shape = (1, height, 2 * width if name == "cyclegan" else width)
    real = torch.randn(2, *shape).tanh()
    if name not in OTHERS:
        g, d = (build(name, side, 0, shape, latent=420).float() for side in SIDES)  # 420 is 2, 3, … 7 equal parts
        is_paired = getattr(g, "takes_condition", False)
        return g, d, (None, None, real) if is_paired else (torch.randn(2, g.latent),), real
    file = registry.load_module("models", name)
    g, d = (hold_updates(getattr(file, side)(options(name, blocks=1), shape)) for side in SIDES)
    for net in (g, d):
        initialise(net, 0, "net")
    return g, d, (real[..., ::4, ::4] if name == "real_esrgan" else real,), real


def logits_of(d, x, condition=None):
    output = d(x) if condition is None else d(x, None, condition)
    maps = output.values() if isinstance(output, dict) else [DiscriminatorOutput.of(output).logits_B]
    assert all(len(logits) == len(x) for logits in maps)
    return torch.cat([logits.reshape(len(x), -1) for logits in maps], 1)


def check_gradients(net):
    gradients = [p.grad for p in net.parameters() if p.grad is not None]  # a codebook has none of D
    assert all(gradient.isfinite().all() for gradient in gradients) and any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize(("height", "width"), [(28, 40), (40, 28), *LATER])
@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_every_size_trains_a_step_with_r1(name, height, width):
    g, d, inputs, real = players(name, height, width)
    condition = inputs[2] if len(inputs) == 3 else None
    for net in (g, d):
        net.requires_grad_(True)
        begin_update(net)
    fake = g(*inputs)
    fake = GeneratorOutput.of(fake).images
    assert fake.shape == real.shape
    logits_of(d, fake, condition).sin().sum().backward()
    check_gradients(g)
    begin_update(d)
    x = real.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(logits_of(d, x, condition).sum(), x, create_graph=True)
    assert slope.shape == real.shape and slope.abs().sum() > 0
    d.zero_grad()
    slope.square().sum().backward()
    check_gradients(d)


@pytest.mark.parametrize("name", GROWN)
@pytest.mark.parametrize(
    ("size", "multiple", "near"),
    [
        ((30, 30), 4, "28 or 32"),
        ((25, 40), 4, "24x40 or 28x40"),
        ((40, 25), 4, "40x24 or 40x28"),
        ((100, 100), 8, "96 or 104"),
        ((14, 14), 4, "12 or 16"),
        ((127, 130), 8, "120x128 or 128x136"),  # the shorter side of the larger one has a larger multiple
    ],
)
def test_other_sizes_are_refused_in_one_line_with_the_two_nearest(name, size, multiple, near):
    file, chosen = registry.load_module("models", name), options(name, conditional=False, latent=420)
    for side in SIDES:
        with pytest.raises(ConfigError, match=rf"not a multiple of {multiple}\b.* use {near}, or resize the images$"):
            getattr(file, side)(chosen, (1, *size), 0)
    for text in near.split(" or "):
        height, width = map(int, (re.split("x", text) * 2)[:2])
        file.Discriminator(chosen, (1, height, width), 0)


@pytest.mark.parametrize("name", [*GROWN, *OTHERS])
@pytest.mark.parametrize(("size", "words"), [((4, 4), "4"), ((4, 40), "4x40")])
def test_too_small_images_are_refused(name, size, words):
    with pytest.raises(ConfigError, match=rf"^data\.size={words} is too small .* use (8|12) or more$"):
        players(name, *size)


@pytest.mark.parametrize("name", GROWN)
def test_smallest_images_pass(name):
    g, d, inputs, real = players(name, 8, 8)
    condition = inputs[2] if len(inputs) == 3 else None
    assert g(*inputs).shape == real.shape
    assert logits_of(d, real, condition).isfinite().all()


@pytest.mark.parametrize(
    ("name", "wanted", "shape", "words"),
    [
        (
            "flow_unet",
            {"multiples": (1, 2, 4)},
            (3, 28, 28),
            "of 8, which model.multiples of 3 maps needs; use 24 or 32",
        ),
        ("vqgan", {"halvings": 5}, (3, 16, 16), "of 32, which model.halvings=5 needs; use 32"),
        ("real_esrgan", {"factor": 4}, (3, 30, 40), "of 4, which model.factor=4 needs; use 28x40 or 32x40"),
        ("cyclegan", {}, (3, 40, 52), "of 4, .* use 40x24 or 40x28"),  # two of 40x26
        ("vqgan", {}, (1, 1024), "needs images"),
    ],
)
def test_multiples_of_a_setting_name_it(name, wanted, shape, words):
    file = registry.load_module("models", name)
    with pytest.raises(ConfigError, match=words):
        file.Generator(file.Options(**wanted), shape, 3)
