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
from PIL import Image, ImageOps, UnidentifiedImageError

from paragan.core.command import me
from paragan.core.errors import DataError

MOST_PIXELS = 1 << 26  # 67 million; a picture of that size takes up to 256 MiB while it is decoded
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I")
_SEE_THROUGH = ("RGBA", "LA", "PA", "RGBa", "La")
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_DAMAGE = (
    *(OSError, SyntaxError, ValueError, TypeError, IndexError, EOFError, OverflowError, KeyError, AttributeError),
    *(struct.error, zlib.error),
)  # what Pillow's readers raise on damaged files

# Above a limit of its own Pillow warns and goes on. An error, for good: a filter for each picture would make every
# other warning of the process appear again and again.
warnings.filterwarnings("error", category=Image.DecompressionBombWarning)


def opened(data: bytes, where: str) -> Image.Image:
    """The picture as it is stored, its pixels read; of an animation the first frame.

    Raises `DataError` where it is damaged, too large, or of floating-point pixels, whose range nobody knows.
    """
    with _damage_told(where):
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if image.width * image.height > MOST_PIXELS:
            raise Image.DecompressionBombError
        image.load()
    if image.mode == "F":
        raise DataError(f"{where}: found floating-point pixels, expected 8 or 16 bits; save it as PNG")
    return image


def plain(image: Image.Image, where: str, channels: int, background: int) -> Image.Image:
    """Upright, 8 bits, grey (1 channel) or red, green, blue (3). Transparent parts show the grey level `background`."""
    with _damage_told(where):
        image = ImageOps.exif_transpose(image)
        if image.mode in _DEEP:
            levels = np.asarray(image).astype(np.int64).clip(0, 65535)
            image = Image.fromarray((levels // 257).astype(np.uint8))
        if _is_see_through(image):
            below = Image.new("RGBA", image.size, (background, background, background, 255))
            image = Image.alpha_composite(below, image.convert("RGBA"))
        if image.mode not in ("1", "L"):
            image = image.convert("RGB")
        return image.convert("L" if channels == 1 else "RGB")


def kind(image: Image.Image) -> str:
    """colour, grey, palette, alpha, 16-bit or CMYK."""
    if image.mode in _DEEP:
        return "16-bit"
    if _is_see_through(image):
        return "alpha"
    return {"P": "palette", "CMYK": "CMYK", "L": "grey", "1": "grey"}.get(image.mode, "colour")


def fitted(image: Image.Image, size: int, crop: bool) -> Image.Image:
    """A square of `size` pixels (Lanczos), of the largest square in the middle, or with `crop` off of the whole."""
    if image.size == (size, size):
        return image
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side) if crop else (0, 0, width, height)
    return image.resize((size, size), Image.Resampling.LANCZOS, box=box)


def planes(image: Image.Image) -> NDArray[np.uint8]:
    """uint8 (channels, height, width) of a grey or colour image, contiguous: kernels go by strides, too."""
    pixels = np.asarray(image)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


def _is_see_through(image: Image.Image) -> bool:
    return image.mode in _SEE_THROUGH or "transparency" in image.info


@contextmanager
def _damage_told(where: str) -> Iterator[None]:
    try:
        yield
    except _BOMB:
        raise DataError(
            f"{where}: found a picture of too many pixels, expected at most {MOST_PIXELS:,}; make it smaller"
        ) from None
    except UnidentifiedImageError:
        raise DataError(f"{where}: found no picture, expected {', '.join(_FORMATS)}; {_what_to_do()}") from None
    except _DAMAGE as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{where}: found a damaged picture ({told}), expected a whole one; {_what_to_do()}") from None


def _what_to_do() -> str:
    return f"`{me()} data check` names all such files"
