"""Images of a user in the form that networks were trained on."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
from paragan.datasets._image_values import read_levels
from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat


@contextmanager
def advising_a_user() -> Iterator[None]:
    """Replace the advice of `DataError`, which is for data of training: its settings do not apply to a user's file."""
    try:
        yield
    except DataError as error:
        if not error.advice:
            raise
        raise DataError(error.problem, "correct, convert or replace the file") from None


@advising_a_user()
def decode_whole(data: bytes, where: str, channels: int, data_options: object = None) -> Tensor:
    """Return an encoded image, upright, as float32 (channels, H, W) in [-1, 1]. Raises `DataError` if it is damaged.

    where: the file in messages. data_options: of the training data, for background and range (pairs: the condition's).
    """
    background = int(getattr(data_options, "background", 255))
    limits = getattr(data_options, "condition_range", getattr(data_options, "range", None))  # of pairs, G's input
    if limits is not None:  # of values that may have more than 8 bits, which `decode_image` would round
        options = PixelOptions(channels=channels, range=limits, background=background)
        levels = [np.asarray(level) for level in read_levels(data, where, options)]  # from 0 to 1
        return torch.tensor(np.stack(levels)) * 2 - 1
    return whole_image(_image_decoding.decode_image(data, where), channels, background, where)


@advising_a_user()
def decode_cropped(data: bytes, where: str, shape: tuple[int, int, int]) -> Tensor:
    """Return the largest part of this shape in the middle of an encoded image, resized, as uint8 like training data.

    shape: channels, height, width. where: the file in messages. Raises `DataError` if the image is damaged.
    """
    return torch.tensor(PixelFormat(size=shape[1:], options=PixelOptions(channels=shape[0])).decode(data, where))


def has_frames(data: bytes) -> bool:
    """Return whether an image is an animation or has pages; of MPO, photos with previews, the first is the image."""
    with suppress(OSError), Image.open(io.BytesIO(data)) as image:
        return image.format in ("GIF", "WEBP", "PNG", "TIFF") and getattr(image, "is_animated", False)
    return False


def whole_image(image: Image.Image, channels: int, background: int = 255, where: str = "image") -> Tensor:
    """Return a Pillow image as `decode_whole` returns an encoded one."""
    converted = _image_decoding.convert_image(image, where, channels, background)
    return torch.tensor(_image_decoding.to_chw_array(converted)).float() / 127.5 - 1
