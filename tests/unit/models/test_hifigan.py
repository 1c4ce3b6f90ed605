"""HiFi-GAN's networks of any width."""

import pytest
import torch

from paragan.models import hifigan


@pytest.mark.parametrize("width", [16, 112, 144, 176, 240])
def test_small_discriminator_takes_any_width(width):
    d = hifigan.Discriminator(hifigan.Options(width=width), (1, 256))
    outputs = d(torch.zeros(1, 1, 256))
    assert [len(outputs[name]) for name in ("mpd", "msd")] == [5, 2]


def test_groups_of_a_width_that_four_divides_are_a_quarter_of_the_channels():
    d = hifigan.Discriminator(hifigan.Options(width=128), (1, 256))
    assert [conv.groups for conv in d.msd[0].convs] == [1, 2, 4, 8]
