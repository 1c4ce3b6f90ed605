"""Bands of a TIFF file that are no alpha, also where Pillow takes the fourth for alpha or reads none of them."""

import numpy as np
import pytest

from tests.image_files import tiff
from tests.unit.datasets.test_pixel_format import LAYOUTS, SIDE, noise, pixels


@pytest.mark.parametrize("layout", [*LAYOUTS, {"rgb": True}, {"rgb": True, "planar": True}])
@pytest.mark.parametrize("bands", [3, 4, 5])
def test_the_first_bands_are_the_colours_where_none_is_alpha(bands, layout):
    values = noise(*SIDE, bands)
    data = tiff(values, **layout)
    assert np.array_equal(pixels(channels=3).decode(data, "x"), values.transpose(2, 0, 1)[:3])
    grey = values @ [0.299, 0.587, 0.114, 0, 0][:bands] if bands < 5 else values[..., 0]
    assert np.abs(pixels(channels=1).decode(data, "x")[0] - grey).max() <= 1
