"""Photos of twelve megapixels through networks with norms over the image, whose tiles are made by themselves."""

import numpy as np
import pytest
from PIL import Image

import paragan as pg
from tests.unit.export.image_runs import noise

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "direction"), [("pix2pix", None), ("translate", "b_to_a"), ("vqgan", None)])
def test_photo_of_twelve_megapixels_is_applied_everywhere(image_runs, name, direction):
    photo = noise(1000, 750).resize((4000, 3000), Image.Resampling.NEAREST)
    result = pg.load(image_runs / name).apply(photo, direction)
    assert result.size == photo.size
    pixels = np.asarray(result)
    for top in range(0, 3000, 500):
        for left in range(0, 4000, 500):
            assert pixels[top : top + 500, left : left + 500].std((0, 1)).min() > 0.5
