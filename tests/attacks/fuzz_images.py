"""Image files of six formats and all modes that Pillow writes them in."""

import io
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from tests.attacks.mutations import mutate_bytes

_FORMATS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P"),
    "TIFF": ("1", "L", "RGB", "CMYK", "I;16", "F"),
}


@cache
def _encoded(kind: str, mode: str) -> bytes:
    pixels = Random(7).randbytes(24 * 20 * 3)
    image = Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(20, 24, 3)).convert("RGB")
    image = image.convert("L").convert(mode) if mode in ("1", "I;16", "F", "LA") else image.convert(mode)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def fuzz_images(draws: Random, root: Path) -> None:
    kind = draws.choice(list(_FORMATS))
    data = mutate_bytes(draws, _encoded(kind, draws.choice(_FORMATS[kind])))
    options = PixelOptions(
        channels=draws.choice((1, 3, 4, 5)),
        crop=draws.choice(("center", "squash", "random")),
        bits=draws.choice((8, 16)),
        range=draws.choice((None, (-100.0, 300.0))),
    )
    PixelFormat(size=(8, 8), options=options).decode(data, "fuzzed image", draws.choice((None, draws.getrandbits(60))))


TARGETS = {"images": fuzz_images}
