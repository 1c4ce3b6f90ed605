"""Pictures of samples with any number of channels."""

import pytest
import torch

from paragan.export.sampled_images import SampledImages
from paragan.storage.image_sheet import GREY, make_sheet


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16])
def test_sheets_and_images_of_any_channels(channels, tmp_path):
    x_BCHW = torch.rand(3, channels, 8, 8) * 2 - 1
    sheet = make_sheet(x_BCHW, 2)
    assert sheet.shape[0] == (1 if channels == 1 else 3)
    images = SampledImages(x_BCHW)
    assert images[0].mode == {1: "L", 4: "RGBA"}.get(channels, "RGB")
    assert images.save(tmp_path / "sheet.jpg").stat().st_size > 0


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_gap_between_images_is_grey_in_all_channels(channels):
    sheet = make_sheet(torch.zeros(2, channels, 32, 32), 2)
    assert sheet[:, 32:].unique().tolist() == sheet[:, :, 32:34].unique().tolist() == [GREY]


@pytest.mark.parametrize(("height", "width", "side"), [(32, 32, 4), (64, 48, 6), (48, 64, 6)])
def test_four_channels_are_shown_on_a_checkerboard(height, width, side):
    x_BCHW = -torch.ones(1, 4, height, width)  # black
    x_BCHW[:, 3, 16:] = 1  # opaque below
    sheet = make_sheet(x_BCHW, 1)[:, :height, :width]
    assert sheet[:, 16:].max() == 0
    for y in range(16):
        for x in range(width):
            assert sheet[:, y, x].tolist() == [204 if (y // side + x // side) % 2 else 255] * 3


def test_half_transparent_pixel_is_half_of_what_is_behind_it():
    x_BCHW = torch.zeros(1, 4, 32, 32)
    x_BCHW[:, 0] = 1
    sheet = make_sheet(x_BCHW, 1)
    assert sheet[:, 0, 0].tolist() == [255, 191, 191]
    assert sheet[:, 0, 4].tolist() == [230, 166, 166]


def test_small_images_have_enlarged_squares():
    sheet = make_sheet(-torch.ones(1, 4, 8, 8), 1)[:, :32, :32]
    assert sheet[:, :4, :4].min() == 255
    assert sheet[:, :4, 4:8].max() == 204
