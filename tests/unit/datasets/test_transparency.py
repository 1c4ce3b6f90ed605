"""Colours that transparent pixels of a file hide."""

import io

import numpy as np
import pytest
from PIL import Image

from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat


@pytest.mark.parametrize("settings", [{}, {"resize": "bicubic"}, {"crop": "squash", "resize": "bicubic"}], ids=str)
@pytest.mark.parametrize("side", [4, 8, 12])
def test_hidden_colours_of_transparent_pixels_are_not_read(settings, side):
    """Neither as pixels nor, after a resize, in the edges of what is opaque."""
    values = np.zeros((8, 8, 4), np.uint8)
    values[:, :4] = (255, 0, 0, 255)
    values[:, 4:] = (0, 255, 0, 0)
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    pixels = PixelFormat(size=(side, side), options=PixelOptions(channels=4, **settings))
    x_CHW = pixels.decode(file.getvalue(), "x")
    assert x_CHW.shape == (4, side, side)
    assert x_CHW[1].max() == 0
    assert x_CHW[0][x_CHW[3] > 0].min() == 255
    assert x_CHW[:, x_CHW[3] == 0].max() == 0
