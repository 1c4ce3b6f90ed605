"""All bands of a TIFF file, of any type of numbers, where Pillow reads up to four of 8 bits."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, TiffImagePlugin as tiff

Values = NDArray[Any]  # of a file, of any type of numbers
_GREY, _RGB = 1, 2
_LOSSLESS = (1, 5, 8, 32773, 32946, 34925, 50000)  # none, LZW, deflate, PackBits, deflate, LZMA, Zstandard
_TYPES = {(number, 8 * size): f"{kind}{size}" for number, kind in enumerate("uif", 1) for size in (1, 2, 4, 8)}
_UNUSED_TAG = 65_535


@dataclass(frozen=True)
class Tiff:
    """First page of a TIFF file. shape: height, width and bands of its values."""

    tags: tiff.ImageFileDirectory_v2
    shape: tuple[int, int, int]
    dtype: np.dtype[np.generic]

    @property
    def has_alpha(self) -> bool:
        """Whether the last band is alpha, by which colours are not multiplied."""
        return self.tags.get(tiff.EXTRASAMPLES) == (2,)

    @property
    def num_colours(self) -> int:
        """Bands that are grey or RGB by the file; GDAL calls the first of any number grey."""
        return 3 if self.tags[tiff.PHOTOMETRIC_INTERPRETATION] == _RGB else 1


def read_layout(data: bytes) -> Tiff | None:
    """Return the layout of a TIFF file; None for other files, and values that are not plain grey, RGB and more."""
    if data[:4] not in (b"II*\0", b"MM\0*"):
        return None
    page = tiff.ImageFileDirectory_v2(data[:8])
    stream = io.BytesIO(data)
    stream.seek(page.next)
    page.load(stream)
    kinds, bits = ({*page.get(tag, (1,))} for tag in (tiff.SAMPLEFORMAT, tiff.BITSPERSAMPLE))
    is_plain = page.get(tiff.PHOTOMETRIC_INTERPRETATION) in (_GREY, _RGB) and page.get(tiff.EXTRASAMPLES) != (1,)
    is_plain = is_plain and page.get(tiff.COMPRESSION, 1) in _LOSSLESS and len(kinds) == len(bits) == 1
    if not is_plain or (number := (kinds.pop(), bits.pop())) not in _TYPES:
        return None
    shape = page[tiff.IMAGELENGTH], page[tiff.IMAGEWIDTH], page.get(tiff.SAMPLESPERPIXEL, 1)
    return Tiff(page, shape, np.dtype(("<" if data[:1] == b"I" else ">") + _TYPES[number]))


def read_bands(data: bytes, layout: Tiff) -> Values:
    """Return the values (H, W, C), which Pillow decodes as a grey image of their bytes."""
    height, width, bands = layout.shape
    planes = bands if layout.tags.get(tiff.PLANAR_CONFIGURATION, 1) == 2 else 1
    predictor = layout.tags.get(tiff.PREDICTOR, 1)
    part_width = layout.tags.get(tiff.TILEWIDTH, width)
    part_height = layout.tags.get(tiff.TILELENGTH) or min(layout.tags.get(tiff.ROWSPERSTRIP, height + 1), height)
    if predictor > 2 or (planes > 1 and height % part_height):
        raise ValueError("its values are in an unusual order; save it without a predictor, pixel by pixel")
    pixel_bytes = bands // planes * layout.dtype.itemsize
    changes = {tiff.IMAGEWIDTH: width * pixel_bytes, tiff.TILEWIDTH: part_width * pixel_bytes}
    changes |= {tiff.IMAGELENGTH: height * planes, tiff.ROWSPERSTRIP: part_height}
    grey = Image.open(io.BytesIO(_as_grey(data, changes)), formats=("TIFF",))
    values = np.asarray(grey).view(layout.dtype).astype(layout.dtype.newbyteorder("="))
    values = values.reshape(planes, height, width, bands // planes)
    if predictor == 2:  # values are differences from those at their left
        for left in range(0, width, part_width):
            part = values[:, :, left : left + part_width]
            part.cumsum(2, dtype=part.dtype, out=part)
    return values.transpose(1, 2, 0, 3).reshape(layout.shape)


def _as_grey(data: bytes, changes: dict[int, int]) -> bytes:
    """Return the file with other tags in its first directory, for grey values of 8 bits."""
    single = (tiff.PLANAR_CONFIGURATION, tiff.PHOTOMETRIC_INTERPRETATION, tiff.SAMPLESPERPIXEL, tiff.SAMPLEFORMAT)
    once = (*single, tiff.PREDICTOR, ExifTags.Base.Orientation)  # by which Pillow would turn the bytes
    changes = {**changes, **dict.fromkeys(once, 1), tiff.BITSPERSAMPLE: 8, tiff.EXTRASAMPLES: 0}
    order = "<" if data[:1] == b"I" else ">"
    (place,) = struct.unpack_from(f"{order}L", data, 4)
    (count,) = struct.unpack_from(f"{order}H", data, place)
    content = bytearray(data)
    for entry in range(place + 2, place + 2 + 12 * count, 12):
        (tag,) = struct.unpack_from(f"{order}H", data, entry)
        if tag in changes:
            number = _UNUSED_TAG if tag == tiff.EXTRASAMPLES else tag
            struct.pack_into(f"{order}HHLL", content, entry, number, 4, 1, changes[tag])
    return bytes(content)
