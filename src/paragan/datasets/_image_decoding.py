"""Image decoding in bounded memory: any supported file to upright 8-bit pixels."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, JpegImagePlugin, UnidentifiedImageError

from paragan.core.command import program_command
from paragan.core.errors import DataError
from paragan.datasets._image_formats import FORMATS, image_suffix

MAX_PIXELS = 1 << 26  # 67 million
MAX_BYTES = 256 << 20  # memory to decode and convert one image, in addition to its file
_MAX_SIDE = 65_535  # resizing needs tables of this length
STRIP_PIXELS = 1 << 18
_HIGH_DEPTH_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")
# extra bytes per pixel; measured with VmHWM
_DECODER_BYTES = {"WEBP": 12, "progressive": 6, "TIFF": 4}
_ORIENTATION = 0x0112
_TRANSPOSE_OF_ORIENTATION = {  # by Exif orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BOMB_ERRORS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_DAMAGE_ERRORS = (
    *(
        OSError,
        SyntaxError,
        ValueError,
        TypeError,
        IndexError,
        EOFError,
        OverflowError,
        KeyError,
        AttributeError,
        RuntimeError,
    ),
    *(struct.error, zlib.error),
)  # raised by Pillow's readers on damaged files


def decode_image(data: bytes, where: str) -> Image.Image:
    """Decode an image in its stored mode; of an animation, the first frame.

    A JPEG that would take more than `MAX_BYTES` is decoded at half its width and height. where: the
    file in messages. Raises `DataError` if the image is damaged, too large, or has floating-point
    pixels, whose range is unknown.
    """
    _make_bomb_warnings_errors()
    with _raise_data_errors(where):
        image = _open(data, where)
        extra = _DECODER_BYTES.get("progressive" if "progressive" in image.info else image.format or "", 0)
        pixels = image.width * image.height
        stored = bytes_per_pixel(image.mode)
        is_large = pixels > MAX_PIXELS or pixels * max(stored + extra, 2 * stored) > MAX_BYTES
        if image.format in ("JPEG", "MPO") and is_large:
            image.draft(image.mode, (image.width // 2, image.height // 2))
        if image.width * image.height > MAX_PIXELS:
            raise Image.DecompressionBombError
        if max(image.size) > _MAX_SIDE:
            raise DataError(
                f"{where}: {image.width:,} x {image.height:,} pixels; the longer side is at most {_MAX_SIDE:,}: cut "
                "the image into parts"
            )
        _check_memory(pixels * extra + image.width * image.height * stored, image, where)
        image.load()
    if image.mode == "F":
        raise DataError(f"{where}: floating-point images are not supported; save it with 8 or 16 bits")
    return image


def _open(data: bytes, where: str) -> Image.Image:
    """Open an image as the format that its first bytes show."""
    suffix = image_suffix(data)
    if suffix is None:
        raise UnidentifiedImageError
    if suffix == ".jpg":  # without Pillow's limit of pixels: a large one is read at half its size
        return JpegImagePlugin.jpeg_factory(io.BytesIO(data))
    if suffix == ".heic":
        _register_heic(where)
    return Image.open(io.BytesIO(data), formats=(FORMATS[suffix],))


@cache
def _register_heic(where: str) -> None:
    try:
        import_module("pillow_heif").register_heif_opener()
    except ImportError:
        raise DataError(
            f"{where}: a HEIC image, which needs a plug-in of Pillow; pip install pillow-heif, or convert it to JPEG"
        ) from None


def convert_image(image: Image.Image, where: str, channels: int, background: int) -> Image.Image:
    """Return the image upright in 8-bit grey (1 channel) or RGB (3), over a grey `background`.

    An image that has this form already is returned unchanged. Raises `DataError` if the image and
    its copies would take more than `MAX_BYTES`.
    """
    with _raise_data_errors(where):
        mode = "L" if channels == 1 else "RGB"
        transpose = _TRANSPOSE_OF_ORIENTATION.get(image.getexif().get(_ORIENTATION, 1))
        needs_conversion = image.mode != mode or _has_transparency(image)
        copies = needs_conversion + (transpose is not None)
        needed = bytes_per_pixel(image.mode) + copies * bytes_per_pixel(mode)
        _check_memory(image.width * image.height * needed, image, where)
        if needs_conversion:
            image = _convert_mode(image, mode, background)
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
    if image.mode in _HIGH_DEPTH_MODES:
        levels = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray((levels // 257).astype(np.uint8))
    if _has_transparency(image):
        backdrop = Image.new("RGBA", image.size, (background, background, background, 255))
        image = Image.alpha_composite(backdrop, image.convert("RGBA"))
    if image.mode not in ("1", "L"):
        image = image.convert("RGB")
    return image.convert(mode)


def bytes_per_pixel(mode: str) -> int:
    """Return the bytes per pixel in memory, where Pillow pads three channels to four."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def _check_memory(num_bytes: int, image: Image.Image, where: str) -> None:
    if num_bytes > MAX_BYTES:
        raise DataError(
            f"{where}: {image.width} x {image.height} pixels ({image.format}, {image.mode}) would "
            f"take {num_bytes >> 20} MiB to decode; the limit is {MAX_BYTES >> 20} MiB: make the "
            "image smaller"
        )


def image_kind(image: Image.Image) -> str:
    """Return the kind of an image: colour, grey, palette, alpha, 16-bit or CMYK."""
    if image.mode in _HIGH_DEPTH_MODES:
        return "16-bit"
    if _has_transparency(image):
        return "alpha"
    return {"P": "palette", "CMYK": "CMYK", "L": "grey", "1": "grey"}.get(image.mode, "colour")


def decode_resized(
    data: bytes,
    where: str,
    size: tuple[int, int],
    channels: int = 3,
    crop: bool = True,
    background: int = 255,
) -> NDArray[np.uint8]:
    """Decode the bytes of a file to uint8 (channels, *size), as `decode_resized_image`."""
    return to_chw_array(decode_resized_image(data, where, size, channels, crop, background))


def decode_resized_image(
    data: bytes, where: str, size: tuple[int, int], channels: int, crop: bool, background: int
) -> Image.Image:
    """Decode the bytes of a file to a grey or RGB image, resized with Lanczos' filter.

    where: the file in messages. size: height and width. crop: to the largest centred part of their
    ratio; else the aspect ratio changes. Raises `DataError` as `decode_image` and `convert_image`.
    """
    image = convert_image(decode_image(data, where), where, channels, background)
    height, width = size
    lanczos = Image.Resampling.LANCZOS
    return ImageOps.fit(image, (width, height), lanczos) if crop else image.resize((width, height), lanczos)


def to_chw_array(image: Image.Image) -> NDArray[np.uint8]:
    """Return the pixels of a grey or colour image as contiguous uint8 (channels, height, width)."""
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _has_transparency(image: Image.Image) -> bool:
    return image.mode in _ALPHA_MODES or "transparency" in image.info


@contextmanager
def _raise_data_errors(where: str) -> Iterator[None]:
    """Turn errors of Pillow into a `DataError` that names the file."""
    try:
        yield
    except _BOMB_ERRORS:
        raise DataError(
            f"{where}: the image has too many pixels, the limit is {MAX_PIXELS:,}; make it smaller"
        ) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{where}: not an image in {', '.join(dict.fromkeys(FORMATS.values()))} format; {_find_damaged_hint()}"
        ) from None
    except _DAMAGE_ERRORS as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{where}: the image is damaged ({reason}); {_find_damaged_hint()}") from None


def _find_damaged_hint() -> str:
    return f"list all such files with `{program_command()} data check`"


@cache
def _make_bomb_warnings_errors() -> None:
    """Make Pillow's warning about very large images an error, for the whole process."""
    warnings.filterwarnings("error", category=Image.DecompressionBombWarning)
