"""Image decoding in bounded memory: any supported file to upright 8-bit pixels."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin, UnidentifiedImageError

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.datasets._image_formats import FORMATS, image_suffix
from paragan.datasets._tiff_bands import Values

MAX_PIXELS = 1 << 26  # 67 million
TOP_OF_16_BITS = 65_535
MAX_BYTES = 256 << 20  # memory to decode and convert one image, in addition to its file
_MAX_SIDE = 65_535  # resizing needs tables of this length
STRIP_PIXELS = 1 << 18
HIGH_DEPTH_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")
# extra bytes per pixel; measured with VmHWM
_DECODER_BYTES = {"WEBP": 12, "progressive": 6, "TIFF": 4}
ORIENTATION = 0x0112
_TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
TRANSPOSE_OF_ORIENTATION = {number: Image.Transpose[turn] for number, turn in enumerate(_TURNS, 2)}  # of Exif
_BOMB_ERRORS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def decode_image(data: bytes, where: str) -> Image.Image:
    """Decode an image in its stored mode; of an animation, the first frame.

    A JPEG that would take more than `MAX_BYTES` is decoded at half its width and height. where: the
    file in messages. Raises `DataError` if the image is damaged or too large.
    """
    _set_filters_of_warnings()
    with raise_image_errors(where):
        image = open_image(data, where)
        extra = _DECODER_BYTES.get("progressive" if "progressive" in image.info else image.format or "", 0)
        pixels = image.width * image.height
        stored = bytes_per_pixel(image.mode)
        max_bytes = pixels * max(stored + extra, 2 * stored)  # while it is decoded, and with a copy to convert it
        is_large = pixels > MAX_PIXELS or max_bytes > MAX_BYTES
        if image.format in ("JPEG", "MPO") and is_large:
            image.draft(image.mode, (image.width // 2, image.height // 2))
        check_num_pixels(*image.size, where)
        check_memory(pixels * extra + image.width * image.height * stored, image, where)
        image.load()
    return image


class PixelSettingError(DataError):
    """Error for an image that is intact, but does not fit the settings of the data set."""


def check_num_pixels(width: int, height: int, where: str) -> None:
    """Raise an error for too many pixels, and for a side that cannot be resized."""
    if width * height > MAX_PIXELS:
        raise Image.DecompressionBombError  # as Pillow; `raise_image_errors` words it
    if max(width, height) > _MAX_SIDE:
        raise DataError(
            f"{where}: {width:,} x {height:,} pixels; the longer side is at most {_MAX_SIDE:,}: cut the image into "
            "parts"
        )


def check_values(values: Values, where: str) -> None:
    """Raise `DataError` for values whose range is not known: of other types than uint8 and uint16."""
    check_values_finite(values, where)
    if values.dtype.kind != "u" or values.dtype.itemsize > 2:
        low, high = values.min(), values.max()
        raise PixelSettingError(
            f"{where}: values of {values.dtype} from {low:g} to {high:g}, of which the range is not known",
            f"pass the lowest and the highest value of all images, such as data.range=[{low:g},{high:g}] "
            f"(`{program_command()} data check` prints them)",
        )


def check_values_finite(values: Values, where: str) -> None:
    """Raise `DataError` for NaN and infinity."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise DataError(f"{where}: some values are not finite; replace them, or leave the image out")


def open_image(data: bytes, where: str) -> Image.Image:
    """Open an image as the format that its first bytes show; its pixels are not decoded. Errors as of Pillow."""
    suffix = image_suffix(data)
    if suffix is None:
        raise UnidentifiedImageError
    if suffix == ".jpg":  # without Pillow's limit of pixels: a large one is read at half its size
        return JpegImagePlugin.jpeg_factory(io.BytesIO(data))
    if suffix == ".heic":
        _register_heic(where)
    return Image.open(io.BytesIO(data), formats=(FORMATS[suffix],))


def _register_heic(where: str) -> None:
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError:
        raise DataError(
            f"{where}: a HEIC image, which needs a plug-in of Pillow; pip install pillow-heif, or convert it to JPEG"
        ) from None


def convert_image(image: Image.Image, where: str, channels: int, background: int) -> Image.Image:
    """Return the image upright in 8-bit grey (1 channel) or RGB (3) over a grey `background`, or in RGBA (4).

    An image that has this form already is returned unchanged. Raises `DataError` if the image and
    its copies would take more than `MAX_BYTES`, and for values without a known range.
    """
    with raise_image_errors(where):
        if image.mode in ("I", "F") and image.format not in ("PNG", "PPM"):  # which have 16 bits at most
            check_values(np.asarray(image), where)
        mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
        transpose = TRANSPOSE_OF_ORIENTATION.get(image.getexif().get(ORIENTATION, 1))
        needs_conversion = image.mode != mode or (has_transparency(image) and mode != "RGBA")
        copied = (needs_conversion + (transpose is not None)) * bytes_per_pixel(mode)
        check_memory(image.width * image.height * (bytes_per_pixel(image.mode) + copied), image, where)
        image = _convert_mode(image, mode, background) if needs_conversion else image
        return image if transpose is None else image.transpose(transpose)


def _convert_mode(image: Image.Image, mode: str, background: int) -> Image.Image:
    """Convert strip by strip, which bounds the memory of the intermediate steps."""
    result = Image.new(mode, image.size)
    rows = max(1, STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        result.paste(_convert_strip(strip, mode, background), (0, top))
    return result


def _convert_strip(image: Image.Image, mode: str, background: int) -> Image.Image:
    if image.mode in HIGH_DEPTH_MODES:
        image = Image.fromarray(((np.asarray(image, np.int32) + 128) // 257).astype(np.uint8))  # rounded
    if has_transparency(image) and mode == "RGBA":
        return image.convert(mode)
    if has_transparency(image):
        backdrop = Image.new("RGBA", image.size, (background, background, background, 255))
        image = Image.alpha_composite(backdrop, image.convert("RGBA"))
    if image.mode not in ("1", "L"):
        image = image.convert("RGB")
    return image.convert(mode)


def bytes_per_pixel(mode: str) -> int:
    """Return the bytes per pixel in memory, where Pillow pads three channels to four."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def check_memory(num_bytes: int, image: Image.Image | None, where: str) -> None:
    """Raise `DataError` for an image that takes more than `MAX_BYTES`. image: None: values of any type."""
    if num_bytes > MAX_BYTES:
        kind = "values" if image is None else f"{image.width} x {image.height} pixels ({image.format}, {image.mode})"
        raise DataError(
            f"{where}: {kind} would take {num_bytes >> 20} MiB to decode; the limit is {MAX_BYTES >> 20} MiB: make the "
            "image smaller"
        )


def to_chw_array(image: Image.Image) -> NDArray[np.uint8]:
    """Return the pixels of a grey or colour image as contiguous uint8 (channels, height, width)."""
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def has_transparency(image: Image.Image) -> bool:
    return image.mode in _ALPHA_MODES or "transparency" in image.info


@contextmanager
def raise_image_errors(where: str) -> Iterator[None]:
    """Turn errors of Pillow into a `DataError` that names the file."""
    try:
        yield
    except _BOMB_ERRORS:
        raise DataError(
            f"{where}: the image has too many pixels, the limit is {MAX_PIXELS:,}; make it smaller"
        ) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{where}: not an image in {', '.join(dict.fromkeys(FORMATS.values()))} format", _find_damaged_hint()
        ) from None
    except (DataError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers raise almost anything on damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{where}: the image is damaged ({reason})", _find_damaged_hint()) from None


def _find_damaged_hint() -> str:
    return f"list all such files with `{program_command()} data check`"


@cache
def _set_filters_of_warnings() -> None:
    """Make Pillow's warning about very large images an error, and ignore its others, for the whole process."""
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")  # of damage that an error names
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
