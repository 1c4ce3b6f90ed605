"""Sampler: blocks that leave the generator alone between them, and truncated styles in batches of the usual size."""

from types import SimpleNamespace

import pytest
import torch

from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.export.gallery import render_mixed
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.layers.init import initialise

NUM = 70  # more than a block of latents


def sampler_of(net, size):
    info = GeneratorInfo(shape=(3, size, size), class_names=(), step=1, images=1)
    return Sampler(net=net, info=info, seed=0, config=SimpleNamespace(evaluation=SimpleNamespace(sampling="eval")))


class Solver(torch.nn.Module):
    """A generator whose images are the number of its steps, over 10."""

    latent, num_classes, sampling_steps = 4, 0, 2

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, z_BZ, y_B=None):
        return self.weight.expand(len(z_BZ), 3, 4, 4) * self.sampling_steps / 10


def test_steps_of_blocks_end_with_each_block():
    net = Solver()
    blocks = sampler_of(net, 4).blocks(NUM, steps=5)
    for _, images in blocks:
        assert (images.tensor == 0.5).all()
        assert net.sampling_steps == 2


def test_a_generator_that_is_used_between_two_blocks_has_its_own_steps():
    sampler = sampler_of(Solver(), 4)
    blocks = sampler.blocks(NUM, steps=5)
    next(blocks)
    assert (sampler.sample(1).tensor == 0.2).all()
    assert (next(blocks)[1].tensor == 0.5).all()


def test_blocks_that_are_not_read_to_the_end_change_no_steps():
    net = Solver()
    blocks = sampler_of(net, 4).blocks(NUM, steps=5)
    next(blocks)
    assert net.sampling_steps == 2
    assert blocks.gi_frame is not None  # it has not ended


@pytest.fixture
def styled():
    module = registry.load_module("models", "stylegan2")
    net = module.Generator(module.Options(width=2, base=8, latent=4, style=4, conditional=False), (3, 8, 8))
    initialise(net, 0, Side.G.value)
    return sampler_of(net, 8)


def batches_of(net):
    """Return a list that receives the number of rows of each call."""
    rows = []
    net.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    return rows


@pytest.mark.parametrize("mode", ["eval", "train-stats"])
def test_truncated_styles_are_generated_in_batches_as_others(styled, mode):
    styled.sample(1)  # the first call measures the size of an image
    rows = batches_of(styled.net)
    styled.sample(NUM, mode=mode)
    whole = rows.copy()
    styled.sample(NUM, mode=mode, truncation=0.5)
    assert rows == whole * 2 == [64, 6] * 2


@pytest.mark.parametrize("mode", ["eval", "train-stats"])
def test_truncation_of_1_changes_no_image(styled, mode):
    torch.testing.assert_close(
        styled.sample(12, mode=mode, truncation=1.0).tensor, styled.sample(12, mode=mode).tensor, rtol=0, atol=1e-5
    )


def test_mixed_styles_are_generated_in_batches_as_others(styled):
    styled.sample(1)
    rows = batches_of(styled.net)
    render_mixed(styled, (3, 4), 1, (), None, lambda done: None)
    assert rows == [12]


def test_a_shift_of_styles_and_a_truncation_are_not_given_at_once(styled):
    z_BZ = styled.latents(2)
    shift_BLW = styled.net.truncation_shift(z_BZ, None, 0.5)
    with pytest.raises(ConfigError, match="shift_BLW"):
        styled.generate(z_BZ, shift_BLW=shift_BLW, truncation=0.5)
