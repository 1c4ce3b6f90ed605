"""Pictures of samples with any number of channels."""

import pytest
import torch

from paragan.export.sampled_images import SampledImages
from paragan.storage.image_sheet import make_sheet


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16])
def test_sheets_and_images_of_any_channels(channels, tmp_path):
    x_BCHW = torch.rand(3, channels, 8, 8) * 2 - 1
    sheet = make_sheet(x_BCHW, 2)
    assert sheet.shape[0] == (1 if channels == 1 else 3)
    images = SampledImages(x_BCHW)
    assert images[0].mode == {1: "L", 4: "RGBA"}.get(channels, "RGB")
    assert images.save(tmp_path / "sheet.jpg").stat().st_size > 0


def test_four_channels_are_shown_on_white():
    x_BCHW = -torch.ones(1, 4, 32, 32)  # black
    x_BCHW[:, 3, 16:] = 1  # opaque below
    sheet = make_sheet(x_BCHW, 1)[:, :32, :32]
    assert sheet[:, :16].min() == 255
    assert sheet[:, 16:].max() == 0
