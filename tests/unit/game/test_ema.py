"""Share of one update in the averaged weights."""

import pytest
from torch import nn

from paragan.game.ema import Ema
from paragan.game.options import EmaOptions


def share(images, batch, **options):
    return Ema(nn.Linear(1, 1), EmaOptions(**options)).weight(images, batch)


@pytest.mark.parametrize(
    ("start_kimg", "images", "is_copied"), [(1.0, 1000, True), (1.0, 1001, False), (0.5, 501, False)]
)
def test_averaging_begins_with_the_first_image_after_start_kimg(start_kimg, images, is_copied):
    assert (share(images, 1, half_life_kimg=1.0, start_kimg=start_kimg) == 1.0) is is_copied


@pytest.mark.parametrize(("batch", "expected"), [(1000, 0.5), (2000, 0.75)])
def test_updates_of_one_half_life_have_half_of_the_average(batch, expected):
    assert share(10_000, batch, half_life_kimg=1.0) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("images", "expected"), [(1000, 1.0), (3000, 0.5), (10_000_000, 1 - 0.5**0.01)])
def test_ramp_bounds_the_half_life_by_a_share_of_the_images_before(images, expected):
    assert share(images, 1000, half_life_kimg=100.0, ramp=0.5) == pytest.approx(expected, abs=1e-12)
