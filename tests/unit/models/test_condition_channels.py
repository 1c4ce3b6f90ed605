"""Networks that make images from images of another number of channels."""

import pytest
import torch

from paragan.core.network_factory import construct_network
from paragan.models import pix2pix, real_esrgan


@pytest.mark.parametrize(("given", "channels"), [(1, 3), (3, 1), (4, 3), (3, 3), (None, 1)])
def test_pix2pix_reads_its_condition_and_makes_its_own_channels(given, channels):
    options = pix2pix.Options(width=2)
    g, d = (
        construct_network(kind, options, (channels, 16, 16), 0, given)
        for kind in (pix2pix.Generator, pix2pix.Discriminator)
    )
    condition = torch.zeros(2, given or channels, 16, 16)
    x = g(None, condition=condition)
    assert x.shape == (2, channels, 16, 16)
    assert d(x, condition=condition).logits_B.shape[0] == 2


@pytest.mark.parametrize("given", [1, 3])
def test_real_esrgan_reads_low_and_makes_its_own_channels(given):
    options = real_esrgan.Options(factor=2, width=4, blocks=1, d_width=2)
    g = construct_network(real_esrgan.Generator, options, (3, 16, 16), 0, given)
    assert g(torch.zeros(2, given, 8, 8)).shape == (2, 3, 16, 16)
    assert construct_network(real_esrgan.Discriminator, options, (3, 16, 16), 0, given) is not None


def test_outside_network_without_the_argument_is_constructed_without_it():
    made = construct_network(lambda options, shape, classes: (shape, classes), None, (3, 8, 8), 2, 1)
    assert made == ((3, 8, 8), 2)
