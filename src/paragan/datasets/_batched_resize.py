"""Bicubic resizing by torch, several images at once, and the decoder before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate

from paragan.datasets import _image_decoding
from paragan.datasets._options import PixelOptions

Pixels = NDArray[np.uint8]

_GROUP_BYTES = 1 << 20  # larger groups gain nothing: a call costs as much as resizing 10,000 pixels


def decode_unresized(data: bytes, where: str, size: tuple[int, int], options: PixelOptions) -> Pixels:
    """Decode the bytes of a file to uint8 (channels, height, width), to be resized to `size`.

    size: height and width. With `crop: center`, the image is cropped to the largest centred part of
    their ratio in whole pixels; what remains of an uneven number is cut at the right or at the bottom.
    If the copy would take more than `MAX_BYTES`, the image is resized here, with Pillow's bicubic filter.
    """
    channels = options.channels
    image = _image_decoding.decode_image(data, where)
    image = _image_decoding.convert_image(image, where, channels, options.background)
    box = _largest_part(image.size, size) if options.crop == "center" else (0, 0, *image.size)
    pixel_bytes = _image_decoding.bytes_per_pixel(image.mode) + channels  # of the image and its copy
    if image.width * image.height * pixel_bytes > _image_decoding.MAX_BYTES:
        image = image.resize(size[::-1], Image.Resampling.BICUBIC, box)
        box = (0, 0, *image.size)
    return _crop_pixels(image, box, channels)


def _largest_part(image_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the box of the largest centred part of an image (width, height) with the ratio of `size`."""
    width, height = image_size
    part_width = min(width, max(1, height * size[1] // size[0]))
    part_height = min(height, max(1, width * size[0] // size[1]))
    left = (width - part_width) // 2
    top = (height - part_height) // 2
    return left, top, left + part_width, top + part_height


def resize_in_groups(images: Iterable[tuple[int, Pixels]], shape: tuple[int, int, int]) -> Iterator[tuple[int, Pixels]]:
    """Yield uint8 images (C, height, width) with their numbers, resized to `shape`, in any order.

    The filter is torch's antialiased bicubic one, on the width first: within one level of Pillow's in
    the same order. It computes with integers, image by image: neither other images nor threads nor
    the kind of processor change a result. Images of this shape are unchanged.
    """
    waiting: list[tuple[int, Pixels]] = []
    num_bytes = 0
    for number, pixels in images:
        if pixels.shape == shape:
            yield number, pixels
            continue
        waiting.append((number, pixels))
        num_bytes += pixels.nbytes
        if num_bytes >= _GROUP_BYTES:
            yield from _resize(waiting, shape)
            waiting = []
            num_bytes = 0
    yield from _resize(waiting, shape)


def _resize(images: list[tuple[int, Pixels]], shape: tuple[int, int, int]) -> Iterator[tuple[int, Pixels]]:
    groups = defaultdict(list)
    for number, pixels in images:
        groups[pixels.shape].append((number, pixels))
    for group in groups.values():
        # with channels last, torch needs neither another copy nor, on x86, threads of its own
        x_BHWC = np.stack([pixels.transpose(1, 2, 0) for _, pixels in group])
        x_BCHW = torch.from_numpy(x_BHWC).permute(0, 3, 1, 2)
        resized_BCHW = interpolate(x_BCHW, shape[1:], mode="bicubic", antialias=True).numpy()
        for (number, _), x_CHW in zip(group, resized_BCHW, strict=True):
            yield number, x_CHW


def _crop_pixels(image: Image.Image, box: tuple[int, int, int, int], channels: int) -> NDArray[np.uint8]:
    """Copy strip by strip, which bounds the memory of Pillow's intermediate copies."""
    left, top, right, bottom = box
    pixels_HWC = np.empty((bottom - top, right - left, channels), np.uint8)
    rows = max(1, _image_decoding.STRIP_PIXELS // (right - left))
    for first in range(top, bottom, rows):
        stop = min(first + rows, bottom)
        strip = np.asarray(image.crop((left, first, right, stop)))
        pixels_HWC[first - top : stop - top] = strip.reshape(stop - first, -1, channels)
    return pixels_HWC.transpose(2, 0, 1)
