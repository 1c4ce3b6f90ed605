"""Values as files store them: turned once, of 16 bits next to transparency, behind damaged headers."""

import io

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets._image_values import read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from tests.image_files import png16, tiff

SIDE = (13, 17)


def noise(*shape, dtype=np.uint8, high=256):
    return np.random.default_rng(0).integers(0, high, shape).astype(dtype)


def pixels(size=SIDE, **options):
    return PixelFormat(size=size, options=PixelOptions(**options))


def encoded(image, name):
    stream = io.BytesIO()
    image.save(stream, name)
    return stream.getvalue()


def upright_values(values_HWC, orientation):
    """Turn values as Exif says: transposed, from the right, from below."""
    turned = values_HWC.swapaxes(0, 1) if orientation > 4 else values_HWC
    turned = turned[:, ::-1] if orientation in (2, 3, 6, 7) else turned
    return turned[::-1] if orientation in (3, 4, 7, 8) else turned


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(
    ("dtype", "bands", "settings", "layout"),
    [
        ("u2", 1, {"bits": 16}, {}),
        ("u1", 3, {"bits": 16}, {"compressed": True}),
        ("u1", 3, {"range": (0, 255)}, {"planar": True}),
        ("u2", 5, {"bits": 16}, {"tile": (16, 16)}),
        ("f4", 2, {"bits": 16, "range": (0, 65535)}, {"order": ">"}),
        ("u1", 1, {}, {}),
    ],
)
def test_values_of_a_tiff_are_turned_once(dtype, bands, settings, layout, orientation):
    values = noise(*SIDE, bands, dtype=dtype, high=256 if dtype == "u1" else 65536)
    expected = upright_values(values, orientation)
    data = tiff(values, orientation=orientation, **layout)
    x_CHW = pixels(size=expected.shape[:2], channels=bands, **settings).decode(data, "x")
    scale = 257 if dtype == "u1" and "bits" in settings else 1
    assert np.array_equal(x_CHW.transpose(1, 2, 0), expected * np.float64(scale))


@pytest.mark.parametrize("background", [0, 77, 255])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("kind", ["alpha", "transparent colour"])
@pytest.mark.parametrize("bits", [8, 16])
def test_16_bits_next_to_transparency_are_kept(kind, bands, background, bits):
    values = noise(*SIDE, bands, dtype=np.uint16, high=65536)
    values[0, :3] = values[2, 2]
    alpha = (
        noise(*SIDE, 1, dtype=np.uint16, high=65536) if kind == "alpha" else (values != values[2, 2]).any(2)[..., None]
    )
    alpha = alpha / (65535 if kind == "alpha" else 1)
    top = 2**bits - 1
    expected = values / 65535 * alpha + (1 - alpha) * background / 255
    if kind == "alpha":
        data = png16(np.dstack([values, np.rint(alpha * 65535)]).astype(np.uint16))
    else:
        data = png16(values, values[2, 2])
    options = {"channels": bands, "background": background}
    x_CHW = pixels(bits=bits, **options).decode(data, "x")
    assert np.abs(x_CHW.transpose(1, 2, 0) - expected * top).max() <= (0.51 if bits == 16 else 3)  # Pillow cuts 8 bits
    kept = pixels(channels=4, bits=16).decode(data, "x").transpose(1, 2, 0)
    assert np.array_equal(
        kept, np.dstack([*np.broadcast_to(values, (*SIDE, 3)).transpose(2, 0, 1), np.rint(alpha * 65535)])
    )


WHOLE = tiff(noise(*SIDE, 3))
NO_HEIGHT = WHOLE.replace(b"\1\1\4\0", b"\1\xee\4\0")  # another tag than 257, ImageLength


@pytest.mark.parametrize("settings", [{}, {"bits": 16}, {"channels": 5}, {"resize": "bicubic"}], ids=str)
@pytest.mark.parametrize("data", [b"II*\0", b"MM\0*\0\0\0", WHOLE[:8], NO_HEIGHT, WHOLE[:-40], WHOLE[:4] + b"\xff" * 9])
def test_a_damaged_tiff_is_damage_of_the_data(data, settings):
    with pytest.raises(DataError, match="damaged"):
        pixels(**settings).decode(data, "x")


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "colour"), ("LA", "colour"), ("PA", "colour")])
def test_alpha_that_is_opaque_everywhere_is_no_transparency(mode, kind):
    opaque = Image.new("RGB", (8, 8), (9, 8, 7)).convert("P" if mode == "PA" else "RGB").convert(mode)
    assert read_values(encoded(opaque, "TIFF" if mode == "PA" else "PNG"), "x").kind == kind
    opaque.putpixel((0, 0), (0, 0, 0, 254)[-len(mode) :])
    assert read_values(encoded(opaque, "TIFF" if mode == "PA" else "PNG"), "x").kind == "alpha"
