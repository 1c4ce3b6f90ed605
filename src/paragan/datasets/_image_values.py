"""Values of an image as its file stores them, of any depth and number of bands, and their mapping by a range."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from paragan.datasets import _image_decoding, _tiff_bands
from paragan.datasets._image_decoding import PixelSettingError
from paragan.datasets._options import PixelOptions
from paragan.datasets._tiff_bands import Tiff, Values

_GREY, _GREY_AND_ALPHA = 0, 4  # colour types of PNG
_LUMA = {0: 0.299, 1: 0.587, 2: 0.114}
_SIDEWAYS = range(5, 9)  # orientations that exchange height and width
_WIDE_MODES = ("F", *_image_decoding.HIGH_DEPTH_MODES)  # one band of more than 8 bits


@dataclass(frozen=True, kw_only=True)
class StoredValues:
    """Values (H, W, C) of an image; alpha, if there is some, is the last band.

    orientation: of Exif, by which the values are not turned yet. has_more: further pages or frames.
    """

    values_HWC: Values
    has_alpha: bool
    orientation: int
    has_more: bool

    @property
    def colours_HWC(self) -> Values:
        return self.values_HWC[..., : self.values_HWC.shape[2] - self.has_alpha]

    @property
    def upright_size(self) -> tuple[int, int]:
        """Height and width."""
        height, width, _ = self.values_HWC.shape
        return (width, height) if self.orientation in _SIDEWAYS else (height, width)

    @property
    def kind(self) -> str:
        """Depth above 8 bits, or: alpha (unless all is opaque), grey, colour, the number of bands."""
        if self.values_HWC.dtype.itemsize > 1:
            return f"{8 * self.values_HWC.dtype.itemsize}-bit"
        if self.has_alpha and self.values_HWC[..., -1].min() < top_of(self.values_HWC):
            return "alpha"
        bands = self.colours_HWC.shape[2]
        return {1: "grey", 3: "colour"}.get(bands, f"{bands}-band")


def top_of(values: Values) -> int:
    """Return the value of full intensity without a range: of 8 bits, or of 16 for all other types."""
    return 255 if values.dtype.itemsize == 1 else _image_decoding.TOP_OF_16_BITS


def is_beyond_pillow(data: bytes) -> bool:
    """Return whether a file has values that Pillow does not read, or bands that are neither colours nor alpha."""
    if _is_deep_png(data):
        return b"tRNS" in data[: data.find(b"IDAT")]
    layout = _tiff_bands.read_layout(data)
    if layout is None:
        return False
    is_usual = layout.dtype.kind == "u" and layout.dtype.itemsize <= 2
    bands = layout.shape[2]  # a second one is taken for alpha
    return not is_usual or (bands > 2 and bands != layout.num_colours + layout.has_alpha)


def read_values(data: bytes, where: str) -> StoredValues:
    """Read the first page of an image, with all its bits and bands if it is TIFF, PNG or grey; or a `DataError`."""
    with _image_decoding.raise_image_errors(where):
        layout = _tiff_bands.read_layout(data)
        if layout is None:
            return _pillow_values(_image_decoding.decode_image(data, where), data)
        return _tiff_values(data, layout, where)


def _tiff_values(data: bytes, layout: Tiff, where: str) -> StoredValues:
    height, width, bands = layout.shape
    _image_decoding.check_num_pixels(width, height, where)
    _image_decoding.check_memory(2 * width * height * bands * layout.dtype.itemsize, image=None, where=where)
    return StoredValues(
        values_HWC=_tiff_bands.read_bands(data, layout),
        has_alpha=layout.has_alpha,
        orientation=layout.tags.get(_image_decoding.ORIENTATION, 1),
        has_more=bool(layout.tags.next),
    )


def _pillow_values(image: Image.Image, data: bytes) -> StoredValues:
    if _is_deep_png(data):
        values = _deep_png_values(image, data)
        has_alpha = values.shape[2] in (2, 4)
    elif image.mode in _WIDE_MODES:
        values = np.asarray(image)
        has_alpha = False
        if image.format == "PPM" and image.mode == "I":  # 16 bits, which Pillow widens to 32
            values = values.astype(np.uint16)
    else:
        has_alpha = _image_decoding.has_transparency(image)
        opaque_mode = "L" if image.mode in ("1", "L") else "RGB"
        mode = "RGBA" if has_alpha else opaque_mode
        values = np.asarray(image if image.mode == mode else image.convert(mode))
    return StoredValues(
        values_HWC=values.reshape(image.height, image.width, -1),
        has_alpha=has_alpha,
        orientation=image.getexif().get(_image_decoding.ORIENTATION, 1),
        has_more=image.format != "MPO" and getattr(image, "is_animated", False),  # photos hold their preview
    )


def _is_deep_png(data: bytes) -> bool:
    return data.startswith(b"\x89PNG") and data[24:25] == b"\x10"


def _deep_png_values(image: Image.Image, data: bytes) -> Values:
    """Return the values (H, W, C) of a PNG of 16 bits; `tRNS` becomes alpha.

    Pillow decodes grey to 16 bits, and other kinds to the high byte of each value only.
    """
    values = np.atleast_3d(np.asarray(image)).astype(np.uint16)
    kind = data[25]  # colour type of the header
    if kind == _GREY_AND_ALPHA:  # four bytes in a pixel, as in RGBA of 8 bits
        values = _pixels_as(data, "RGBA").view(">u2").astype(np.uint16)
    elif kind != _GREY:  # read in the other order of bytes, the low one is what Pillow takes for the high one
        values = values * 256 + _pixels_as(data, f"{image.mode};16L")
    if (colour := image.info.get("transparency")) is not None:
        is_opaque_HW = (values != colour).any(2)
        values = np.dstack([values, is_opaque_HW * np.uint16(_image_decoding.TOP_OF_16_BITS)])
    return values


def _pixels_as(data: bytes, raw_mode: str) -> Values:
    """Decode a PNG as if its file stored pixels in this raw mode of Pillow."""
    image = Image.open(io.BytesIO(data), formats=("PNG",))
    image.tile = [tile._replace(args=raw_mode) for tile in image.tile]  # type: ignore[attr-defined]
    return np.asarray(image)


def read_levels(data: bytes, where: str, options: PixelOptions) -> Iterator[Image.Image]:
    """Yield the channels of an image, upright, as floating-point levels from 0 to 1."""
    stored = read_values(data, where)
    colours_HWC = stored.colours_HWC
    full_range = (0.0, float(top_of(stored.values_HWC)))
    # levels of a channel and of alpha, and what they are computed from
    _image_decoding.check_memory(
        stored.values_HWC.nbytes + 16 * stored.values_HWC[..., 0].size, image=None, where=where
    )
    if options.range is None:
        _image_decoding.check_values(colours_HWC, where)
    mixtures = mix_bands(colours_HWC.shape[2], stored.has_alpha, options.channels, where)
    alpha_HW = _levels(stored.values_HWC[..., -1], full_range, where) if stored.has_alpha else np.float32(1)
    has_alpha_channel = options.channels == len(mixtures) + 1  # otherwise colours are blended with the background
    for weights in mixtures:
        level_HW = np.zeros(colours_HWC.shape[:2], np.float32)
        for band, weight in weights.items():
            level_HW += weight * _levels(colours_HWC[..., band], options.range or full_range, where)
        if stored.has_alpha and not has_alpha_channel:
            level_HW = level_HW * alpha_HW + (1 - alpha_HW) * np.float32(options.background / 255)
        yield _upright(level_HW, stored.orientation)
    if has_alpha_channel:
        yield _upright(np.full(colours_HWC.shape[:2], alpha_HW), stored.orientation)


def _upright(level_HW: Values, orientation: int) -> Image.Image:
    image = Image.fromarray(level_HW)
    transpose = _image_decoding.TRANSPOSE_OF_ORIENTATION.get(orientation)
    return image if transpose is None else image.transpose(transpose)


def mix_bands(num_bands: int, has_alpha: bool, channels: int, where: str) -> list[dict[int, float]]:
    """Return the weights of bands in each channel that is not alpha. num_bands: of a file, without alpha."""
    if channels == 1 and num_bands in (3, 4):
        return [_LUMA]
    if num_bands == 1 and channels in (3, 4):  # grey as red, green and blue
        return [{0: 1.0}] * 3
    num_alpha = 1 if has_alpha or channels == 4 else 0  # of a file without alpha, the fourth channel is opaque
    if num_bands + num_alpha < channels:
        raise PixelSettingError(
            f"{where}: {num_bands} bands, but the data has {channels} channels", f"pass data.channels={num_bands}"
        )
    return [{band: 1.0} for band in range(min(num_bands, channels))]


def _levels(values_HW: Values, limits: tuple[float, float], where: str) -> Values:
    """Map the limits to 0 and 1, and cut what is outside; float32."""
    low, high = limits
    levels_HW: Values = values_HW.astype(np.float32 if values_HW.dtype.itemsize <= 2 else np.float64)
    np.subtract(levels_HW, low, out=levels_HW)
    np.divide(levels_HW, high - low, out=levels_HW)
    _image_decoding.check_values_finite(levels_HW, where)
    return levels_HW.clip(0, 1, out=levels_HW).astype(np.float32, copy=False)


def round_values(values: Values, limits: tuple[float, float] | None, bits: int, where: str) -> Values:
    """Return values as uint8 or uint16: by a range, or from 0 to the highest of 8 or 16 bits."""
    dtype = np.dtype(f"u{bits // 8}")
    if limits is None:
        _image_decoding.check_values(values, where)
        if values.dtype == dtype:
            return values
        limits = (0.0, float(top_of(values)))
    return np.stack([np.rint(_levels(part, limits, where) * (2**bits - 1)).astype(dtype) for part in values])
