"""Which files are read as images: by extension, or by their first bytes where it says nothing."""

import contextlib
import io

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _image_decoding
from paragan.datasets._image_formats import START_BYTES, image_suffix, is_image_file, kind_of_file

PHOTO = np.random.default_rng(0).integers(0, 256, (13, 17, 3), np.uint8)
WRITTEN = {  # Pillow's name, mode and suffix
    **{"PNG": ("RGB", ".png"), "JPEG": ("RGB", ".jpg"), "WEBP": ("RGB", ".webp"), "BMP": ("RGB", ".bmp")},
    **{"GIF": ("P", ".gif"), "TIFF": ("RGB", ".tif"), "AVIF": ("RGB", ".avif"), "JPEG2000": ("RGB", ".jp2")},
    **{"PPM": ("RGB", ".ppm"), "PGM": ("L", ".ppm"), "PBM": ("1", ".ppm"), "MPO": ("RGB", ".jpg")},
}


def encoded(name):
    stream = io.BytesIO()
    image = Image.fromarray(PHOTO).convert(WRITTEN[name][0])
    image.save(stream, {"PGM": "PPM", "PBM": "PPM"}.get(name, name))
    return stream.getvalue()


def not_read():
    raise AssertionError("the file was opened")


@pytest.mark.parametrize("name", WRITTEN)
def test_content_shows_the_format_and_the_pixels_equal_those_of_pillow(name):
    data = encoded(name)
    assert image_suffix(data[:START_BYTES]) == WRITTEN[name][1]
    decoded = _image_decoding.decode_image(data, "x")
    assert decoded.tobytes() == Image.open(io.BytesIO(data)).tobytes()


@pytest.mark.parametrize("name", ["a.JFIF", "a.pgm", "b/a.avif", "a.jp2", "a.heic", "a.png"])
def test_the_extension_of_an_image_is_enough(name):
    assert is_image_file(name.encode(), not_read)


@pytest.mark.parametrize("name", ["a.txt", "a.zip", "a.JSON", "raw.dng"])
def test_files_that_are_known_to_be_none_are_not_opened(name):
    assert not is_image_file(name.encode(), not_read)


@pytest.mark.parametrize("name", ["a", "a.photo", "b.c/a", "a.png.0"])
def test_the_start_of_a_file_decides_where_the_extension_does_not(name):
    assert is_image_file(name.encode(), lambda: encoded("JPEG")[:START_BYTES])
    for text in (b"", b"P", b"BMW is a car, not", b"P1234567890", b"<html><body>text"):
        assert not is_image_file(name.encode(), lambda text=text: text)


def test_kinds_of_other_files_are_counted_by_extension():
    names = [b"a.TXT", b"b/c", b".hidden", b"b.d/c", b"x.tar.gz"]
    assert [kind_of_file(name) for name in names] == [".txt", *["without extension"] * 3, ".gz"]


def test_a_heic_image_names_the_plug_in_that_it_needs():
    data = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)
    assert image_suffix(data[:START_BYTES]) == ".heic"
    with pytest.raises(DataError, match=r"x\.heic: .*(pillow-heif|damaged|not an image)"):
        _image_decoding.decode_image(data, "x.heic")


def test_a_very_large_jpeg_is_read_at_half_its_size(monkeypatch):
    monkeypatch.setattr(_image_decoding, "MAX_PIXELS", 64 * 64)
    for suffix, read in (("JPEG", (40, 33)), ("PNG", None)):
        stream = io.BytesIO()
        Image.new("RGB", (80, 66), (200, 0, 0)).save(stream, suffix)
        if read:
            assert _image_decoding.decode_image(stream.getvalue(), "x").size == read
        else:
            with pytest.raises(DataError, match="too many pixels"):
                _image_decoding.decode_image(stream.getvalue(), "x")


def test_an_image_that_is_too_long_names_its_longer_side():
    stream = io.BytesIO()
    Image.new("1", (70_000, 10)).save(stream, "PNG")
    with pytest.raises(DataError, match=r"^x: 70,000 x 10 pixels; .*65,535"):
        _image_decoding.decode_image(stream.getvalue(), "x")


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow's reader of TIFF
@pytest.mark.parametrize("name", WRITTEN)
def test_damage_anywhere_in_a_file_of_any_format_is_an_error_of_the_data(name):
    draw = np.random.default_rng(1)
    for attempt in range(60):
        data = bytearray(encoded(name))
        data[draw.integers(8, len(data))] = draw.integers(0, 256)
        cut = bytes(data[: draw.integers(8, len(data))] if attempt % 2 else data)
        with contextlib.suppress(DataError):
            assert _image_decoding.decode_image(cut, "x").width


@pytest.mark.parametrize("length", [12, 60, 100])
def test_a_damaged_tiff_is_one_error_without_warnings_of_pillow(length, recwarn):
    _image_decoding._set_filters_of_warnings.cache_clear()  # pytest has other filters in every test
    with pytest.raises(DataError):
        _image_decoding.decode_image(encoded("TIFF")[:length], "x")
    assert not recwarn.list
