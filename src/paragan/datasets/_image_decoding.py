"""From the bytes of a picture to grey levels 0…255: any mode, upright, transparent parts over a plain background."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from paragan.core.command import program_command
from paragan.core.errors import DataError

MAX_PIXELS = 1 << 26  # 67 million
MAX_BYTES = 256 << 20  # of memory for one picture while it is decoded and converted, next to its file
_LONGEST_SIDE = 65_535  # resizing takes tables in proportion to it
_STRIP_PIXELS = 1 << 18
EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
_HIGH_DEPTH_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")
_DECODER_BYTES = {"WEBP": 12, "progressive": 6, "TIFF": 4}  # a pixel on top; measured with VmHWM
_ORIENTATION = 0x0112
_TRANSPOSE_OF_ORIENTATION = {  # of the Exif orientation
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
    *(OSError, SyntaxError, ValueError, TypeError, IndexError, EOFError, OverflowError, KeyError, AttributeError),
    *(struct.error, zlib.error),
)  # what Pillow's readers raise on damaged files

# Above a limit of its own Pillow warns and goes on. An error, for good: a filter for each picture would make every
# other warning of the process appear again and again.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


def decode_image(data: bytes, where: str) -> Image.Image:
    """The picture as it is stored, its pixels read; of an animation the first frame. A JPEG that would take more than
    `MOST_BYTES` is read at half its width and height.

    Raises `DataError` where it is damaged, too large, or of floating-point pixels, whose range is unknown.
    """
    with _raise_data_errors(where):
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if image.width * image.height > MAX_PIXELS or max(image.size) > _LONGEST_SIDE:
            raise Image.DecompressionBombError
        extra = _DECODER_BYTES.get("progressive" if "progressive" in image.info else image.format or "", 0)
        pixels, stored = image.width * image.height, _bytes_per_pixel(image.mode)
        if image.format in ("JPEG", "MPO") and pixels * max(stored + extra, 2 * stored) > MAX_BYTES:
            image.draft(image.mode, (image.width // 2, image.height // 2))
        _refuse_too_large(pixels * extra + image.width * image.height * stored, image, where)
        image.load()
    if image.mode == "F":
        raise DataError(f"{where}: found floating-point pixels, expected 8 or 16 bits; save it as PNG")
    return image


def convert_image(image: Image.Image, where: str, channels: int, background: int) -> Image.Image:
    """Upright, 8 bits, grey (1 channel) or red, green, blue (3). Transparent parts show the grey level `background`.

    The same image where it is like that already. Raises `DataError` where both would take more than `MOST_BYTES`.
    """
    with _raise_data_errors(where):
        mode = "L" if channels == 1 else "RGB"
        turn = _TRANSPOSE_OF_ORIENTATION.get(image.getexif().get(_ORIENTATION, 1))
        converts = image.mode != mode or _has_transparency(image)
        copies = converts + (turn is not None)
        needed = _bytes_per_pixel(image.mode) + copies * _bytes_per_pixel(mode)
        _refuse_too_large(image.width * image.height * needed, image, where)
        if converts:
            image = _convert_mode(image, mode, background)
        return image if turn is None else image.transpose(turn)


def _convert_mode(image: Image.Image, mode: str, background: int) -> Image.Image:
    """A few rows at a time: what a conversion needs in between is small."""
    result, rows = Image.new(mode, image.size), max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        result.paste(_convert_strip(strip, mode, background), (0, top))
    return result


def _convert_strip(image: Image.Image, mode: str, background: int) -> Image.Image:
    if image.mode in _HIGH_DEPTH_MODES:
        levels = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray((levels // 257).astype(np.uint8))
    if _has_transparency(image):
        below = Image.new("RGBA", image.size, (background, background, background, 255))
        image = Image.alpha_composite(below, image.convert("RGBA"))
    if image.mode not in ("1", "L"):
        image = image.convert("RGB")
    return image.convert(mode)


def _bytes_per_pixel(mode: str) -> int:
    """Of an image in memory, where Pillow pads three channels to four."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def _refuse_too_large(num_bytes: int, image: Image.Image, where: str) -> None:
    if num_bytes > MAX_BYTES:
        raise DataError(
            f"{where}: {image.width} x {image.height} pixels ({image.format}, {image.mode}) would take "
            f"{num_bytes >> 20} MiB to decode, and the limit is {MAX_BYTES >> 20} MiB; make the picture smaller"
        )


def image_kind(image: Image.Image) -> str:
    """colour, grey, palette, alpha, 16-bit or CMYK."""
    if image.mode in _HIGH_DEPTH_MODES:
        return "16-bit"
    if _has_transparency(image):
        return "alpha"
    return {"P": "palette", "CMYK": "CMYK", "L": "grey", "1": "grey"}.get(image.mode, "colour")


def resize_square(image: Image.Image, size: int, crop: bool) -> Image.Image:
    """A square of `size` pixels (Lanczos), of the largest square in the middle, or with `crop` off of the whole."""
    if image.size == (size, size):
        return image
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side) if crop else (0, 0, width, height)
    return image.resize((size, size), Image.Resampling.LANCZOS, box=box)


def to_chw_array(image: Image.Image) -> NDArray[np.uint8]:
    """uint8 (channels, height, width) of a grey or colour image, contiguous: kernels go by strides, too."""
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _has_transparency(image: Image.Image) -> bool:
    return image.mode in _ALPHA_MODES or "transparency" in image.info


@contextmanager
def _raise_data_errors(where: str) -> Iterator[None]:
    try:
        yield
    except _BOMB_ERRORS:
        raise DataError(
            f"{where}: found a picture of too many pixels, expected at most {MAX_PIXELS:,}; make it smaller"
        ) from None
    except UnidentifiedImageError:
        raise DataError(f"{where}: found no picture, expected {', '.join(_FORMATS)}; {_find_damaged_hint()}") from None
    except _DAMAGE_ERRORS as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{where}: found a damaged picture ({told}), expected a whole one; {_find_damaged_hint()}"
        ) from None


def _find_damaged_hint() -> str:
    return f"`{program_command()} data check` names all such files"
