"""From encoded images to pixels of one shape, as the settings of a data set say: bands, depth, crop and size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageOps

from paragan.core.errors import DataError
from paragan.datasets import _batched_resize, _image_decoding
from paragan.datasets._encoded_images import EncodedImages, Rows
from paragan.datasets._image_decoding import PixelSettingError
from paragan.datasets._image_formats import image_suffix
from paragan.datasets._image_values import is_beyond_pillow, read_levels, read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._tiff_bands import Values
from paragan.datasets._value_summary import ValueSummary

_FILTERS = {"lanczos": Image.Resampling.LANCZOS, "bicubic": Image.Resampling.BICUBIC}
_OF_PILLOW = (1, 3, 4)  # channels
_NUM_EXAMINED = 4


@dataclass(frozen=True, kw_only=True)
class PixelFormat:
    """Pixels that a data set returns: uint8, or uint16 with 16 bits. size: height and width."""

    size: tuple[int, int]
    options: PixelOptions = field(default_factory=PixelOptions)

    def __post_init__(self) -> None:
        if self.options.resize not in _FILTERS:
            raise DataError(f"data.resize={self.options.resize!r} is not a filter; use {' or '.join(_FILTERS)}")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.options.channels, *self.size

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(np.uint8 if self.options.bits == 8 else np.uint16)

    @property
    def settings(self) -> str:
        """The settings, apart from the shape, on which pixels depend, for the fingerprint.

        Those that came later give no word at their defaults, so that fingerprints of earlier versions stay equal.
        """
        options = self.options
        words = [options.crop, str(options.background), "bicubic" if options.resize == "bicubic" else ""]
        words += ["" if options.bits == 8 else "16 bits", str(options.range or "")]
        return " ".join(filter(None, words))

    def decode(self, data: bytes, where: str, draw: int | None = None) -> Values:
        """Decode an image to `shape`; with `resize: bicubic` perhaps to another size, for `resize_in_groups`.

        where: the file in messages. draw: a random number, for the place of a random crop; None: the centre.
        """
        options = self.options
        is_usual = options.bits == 8 and options.range is None and options.channels in _OF_PILLOW
        with _image_decoding.raise_image_errors(where):
            is_usual = is_usual and not is_beyond_pillow(data)
        if not is_usual:  # more bits, a range, bands: not for Pillow alone
            levels = [np.asarray(self._cut(level, where, draw)) for level in read_levels(data, where, options)]
            return np.rint(np.stack(levels).clip(0, 1) * (2**options.bits - 1)).astype(self.dtype)
        # Pillow weighs colours by alpha, of which torch knows nothing
        if options.resize == "bicubic" and options.crop in ("center", "squash") and options.channels != 4:
            return _batched_resize.decode_unresized(data, where, self.size, options)
        return _image_decoding.to_chw_array(self.picture(data, where, draw))

    def picture(self, data: bytes, where: str, draw: int | None = None) -> Image.Image:
        """Decode an image to a grey, RGB or RGBA one of 8 bits and this size; transparent pixels are black."""
        image = _image_decoding.decode_image(data, where)
        image = _image_decoding.convert_image(image, where, self.options.channels, self.options.background)
        image = self._cut(image, where, draw)
        return _without_hidden_colours(image) if image.mode == "RGBA" else image

    def warnings(self, images: EncodedImages, rows: Rows) -> tuple[str, ...]:
        """Return warnings about values, bands and pages, after a look at a few rows; JPEG is usual without a range.

        Raises `DataError` if the settings do not fit one of them, which would otherwise end a run after its start.
        """
        limits = self.options.range
        summary = ValueSummary(limits)
        for place in np.linspace(0, len(rows) - 1, min(_NUM_EXAMINED, len(rows))):
            row = int(rows[int(place)])
            try:
                (data,) = images.read([row])
                if limits or image_suffix(data) != ".jpg":
                    summary.add(read_values(data, images.where(row)))
                self.decode(data, images.where(row))
            except PixelSettingError:
                raise
            except DataError:  # of a damaged image, which is raised again when it is fetched
                continue
        return tuple(summary.warnings(self.options.channels))

    def _cut(self, image: Image.Image, where: str, draw: int | None) -> Image.Image:
        """Return the part of an upright image that the settings choose, resized to `size`."""
        height, width = self.size
        crop = self.options.crop
        if crop == "none" and image.size != (width, height):
            raise PixelSettingError(
                f"{where}: {image.width} x {image.height} pixels, but data.crop=none takes {width} x {height} alone; "
                "pass data.crop=center, random or squash, or another data.size"
            )
        resample = _FILTERS[self.options.resize]
        if crop == "center":
            return ImageOps.fit(image, (width, height), resample)
        return image.resize((width, height), resample, self._part(*image.size, draw) if crop == "random" else None)

    def _part(self, width: int, height: int, draw: int | None) -> tuple[float, float, float, float]:
        """Return the box of a part of `size` in pixels of the image, which counts as enlarged if it is smaller."""
        scale = max(1.0, self.size[0] / height, self.size[1] / width)
        num_top = round(height * scale) - self.size[0] + 1
        num_left = round(width * scale) - self.size[1] + 1
        if draw is None:
            left, top = (num_left - 1) // 2, (num_top - 1) // 2
        else:
            left, top = divmod(draw % (num_top * num_left), num_top)
        right = min((left + self.size[1]) / scale, width)
        return left / scale, top / scale, right, min((top + self.size[0]) / scale, height)


def _without_hidden_colours(image: Image.Image) -> Image.Image:
    """Return an RGBA image with transparent pixels in black: D would see their colours, which are arbitrary."""
    pixels_HWC = np.array(image)
    pixels_HWC[pixels_HWC[..., 3] == 0] = 0
    return Image.fromarray(pixels_HWC)
