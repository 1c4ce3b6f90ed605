"""Images of a user at their own size, in the form that networks were trained on."""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from paragan.datasets import _image_decoding


def decode_whole(data: bytes, where: str, channels: int, background: int = 255) -> Tensor:
    """Return an encoded image, upright, as float32 (channels, H, W) in [-1, 1]. Raises `DataError` if it is damaged.

    where: the file in messages. background: grey level behind transparent pixels.
    """
    return whole_image(_image_decoding.decode_image(data, where), channels, background, where)


def whole_image(image: Image.Image, channels: int, background: int = 255, where: str = "image") -> Tensor:
    """Return a Pillow image as `decode_whole` returns an encoded one."""
    converted = _image_decoding.convert_image(image, where, channels, background)
    return torch.tensor(_image_decoding.to_chw_array(converted)).float() / 127.5 - 1
