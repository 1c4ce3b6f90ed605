"""Pictures that are small as files and large in memory: decoded within the documented 256 MiB, or refused."""

import os
import struct
import subprocess
import sys
import zlib

import pytest
from PIL import Image, ImageOps

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
from tests.conftest import ROOT

MIB = 1 << 20
SLACK = 24 * MIB  # strips, tables, the file
MEASURE = """
import sys
from PIL import Image
from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
def peak():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
_image_decoding.convert_image(Image.new("RGBA", (9, 9)), "", 3, 0)
Image.init()
data = open(sys.argv[1], "rb").read()
before = peak()
try:
    image = _image_decoding.decode_image(data, "x")
    print(_image_decoding.convert_image(image, "x", int(sys.argv[2]), 0).size)
except DataError as error:
    print(error)
print(peak() - before)
"""


def png(path, width, height, depth, colour, *chunks):
    """Of zeros: a few kB."""
    row = bytes(1 + width * {0: 1, 3: 1, 6: 4}[colour] * depth // 8)
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, content in ((b"IHDR", header), *chunks, (b"IDAT", packed), (b"IEND", b"")):
            file.write(struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content)))


PALETTE = ((b"PLTE", bytes(768)), (b"tRNS", b"\0"))


@pytest.mark.parametrize(
    ("size", "depth", "colour", "chunks", "channels", "said"),
    [
        ((8192, 8191), 8, 6, (), 3, "would take 511 MiB to decode; the limit is 256 MiB"),
        ((8192, 8191), 16, 0, (), 3, "would take 383 MiB to decode; the limit is 256 MiB"),
        ((8192, 8191), 16, 0, (), 1, "(8192, 8191)"),
        ((8192, 8191), 8, 3, PALETTE, 3, "would take 319 MiB to decode; the limit is 256 MiB"),
        ((8192, 6553), 8, 3, PALETTE, 3, "(8192, 6553)"),
    ],
    ids=["rgba", "16-bit", "16-bit-to-grey", "palette", "palette-at-the-limit"],
)
def test_decoding_stays_within_documented_memory(tmp_path, size, depth, colour, chunks, channels, said):
    png(tmp_path / "x.png", *size, depth, colour, *chunks)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "x.png"), str(channels)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    line, peak = done.stdout.splitlines()
    assert said in line, done.stderr
    assert int(peak) <= _image_decoding.MAX_BYTES + SLACK


def test_a_jpeg_above_the_limit_is_read_at_half_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(_image_decoding, "MAX_BYTES", 64 * 64 * 8)
    for size, read in ((64, 64), (66, 33)):
        Image.new("RGB", (size, size), (200, 0, 0)).save(tmp_path / "x.jpg")
        image = _image_decoding.decode_image((tmp_path / "x.jpg").read_bytes(), "x")
        assert image.size == (read, read)
    Image.new("RGB", (66, 66)).save(tmp_path / "x.webp")
    with pytest.raises(DataError, match=r"66 x 66 pixels \(WEBP, RGB\) would take 0 MiB to decode"):
        _image_decoding.decode_image((tmp_path / "x.webp").read_bytes(), "x")


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "PA", "CMYK", "YCbCr", "I", "I;16", "I;16B"])
@pytest.mark.parametrize("channels", [1, 3])
def test_strips_convert_like_the_whole_image(monkeypatch, mode, channels):
    image = pattern(mode)
    whole = _image_decoding.convert_image(image, "x", channels, 90)
    monkeypatch.setattr(_image_decoding, "STRIP_PIXELS", 40)
    assert whole.mode == ("L" if channels == 1 else "RGB") and whole.getextrema() != whole.resize((1, 1)).getextrema()
    assert _image_decoding.convert_image(image, "x", channels, 90).tobytes() == whole.tobytes()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_becomes_upright(orientation):
    image = pattern("RGB")
    image.getexif()[0x0112] = orientation
    assert _image_decoding.convert_image(image, "x", 3, 0).tobytes() == ImageOps.exif_transpose(image).tobytes()


def pattern(mode):
    """17 x 13 pixels, all different."""
    grey = Image.linear_gradient("L").resize((17, 13)).rotate(30)
    if mode == "I":
        image = grey.convert("I").point(lambda v: v * 200)
        image.format = "PPM"  # which has 16 bits at most
        return image
    if mode.startswith("I"):
        return Image.frombytes(mode, (17, 13), bytes(range(256)) * 4, "raw", mode)
    if mode == "PA":
        return Image.merge("LA", (grey, grey)).convert("PA")
    return Image.merge("RGBA", (grey, grey.rotate(90), grey.rotate(180), grey)).convert(mode)
