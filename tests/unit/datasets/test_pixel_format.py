"""Pixels of files of any format, depth and number of bands equal what Pillow and the writer of the file have."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from paragan.core.errors import DataError
from paragan.datasets import folder
from paragan.datasets._image_values import read_values
from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.tensor_source import TensorSource
from paragan.datasets.preparation.dataset_check import check_dataset
from paragan.evaluation.tensor_images import SampleImages
from paragan.loading.loader import Loader
from tests.image_files import png16, tiff

SIDE = (13, 17)
FORMATS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P"),
    "TIFF": ("1", "L", "RGB", "RGBA", "CMYK", "YCbCr", "LAB"),
    "PPM": ("1", "L", "RGB"),
    "AVIF": ("RGB", "RGBA"),
    "JPEG2000": ("L", "LA", "RGB", "RGBA"),
}
CASES = [(name, mode) for name, modes in FORMATS.items() for mode in modes]
LAYOUTS = [
    {},
    {"compressed": True},
    {"order": ">"},
    {"rows": 4},
    {"planar": True},
    {"planar": True, "compressed": True},
    {"tile": (16, 16)},
    {"compressed": True, "predictor": 2},
    {"compressed": True, "predictor": 2, "tile": (16, 16), "order": ">"},
]


def noise(*shape, dtype=np.uint8, low=0, high=256, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def pixels(size=SIDE, **options):
    return PixelFormat(size=size, options=PixelOptions(**options))


def encoded(image, name):
    stream = io.BytesIO()
    image.save(stream, name)
    return stream.getvalue()


def image_of(mode):
    rgba = Image.fromarray(noise(*SIDE, 4), "RGBA")
    if mode == "LA":
        return Image.merge("LA", (rgba.getchannel(0), rgba.getchannel(3)))
    if mode == "LAB":
        return Image.frombytes("LAB", SIDE[::-1], noise(*SIDE, 3).tobytes())
    return rgba if mode == "RGBA" else rgba.convert("RGB").convert(mode)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("name", "mode"), CASES)
def test_decoded_pixels_equal_those_of_pillow(name, mode, channels):
    data = encoded(image_of(mode), name)
    image = Image.open(io.BytesIO(data))
    if image.mode in ("RGBA", "LA") and channels < 4:
        backdrop = Image.new("RGBA", image.size, (90, 90, 90, 255))
        image = Image.alpha_composite(backdrop, image.convert("RGBA"))
    image = image if image.mode in ("L", "1", "LA", "RGBA") else image.convert("RGB")
    expected = np.atleast_3d(np.array(image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])))
    if channels == 4:
        expected[expected[..., 3] == 0] = 0
    x_CHW = pixels(channels=channels, background=90).decode(data, "x")
    assert np.array_equal(x_CHW.transpose(1, 2, 0), expected)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", ["u1", "u2", "i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("bands", [1, 3, 5])
def test_every_value_of_a_tiff_is_read(dtype, bands, layout):
    values = noise(*SIDE, bands, dtype=dtype, low=-999 if dtype[0] != "u" else 0, high=256 if dtype == "u1" else 9999)
    if dtype[0] == "f":
        layout = {**layout, "predictor": 1}
    stored = read_values(tiff(values, **layout), "x").values_HWC
    assert stored.dtype == values.dtype
    assert np.array_equal(stored, values)


@pytest.mark.parametrize(("bands", "channels"), [(1, 1), (3, 3), (4, 4)])
def test_16_bits_of_a_png_are_kept_up_to_the_network(tmp_path, bands, channels):
    values = noise(8, 8, bands, dtype=np.uint16, high=65536)
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(png16(values))
    options = folder.Options(path=str(tmp_path), size=8, channels=channels, bits=16)
    source = folder.source(options, "train")
    assert np.array_equal(source.fetch([0])["image"][0].numpy().transpose(1, 2, 0), values)
    batch = next(Loader(source, batch=2, seed=0, device=torch.device("cpu"), dtype=torch.float64))
    expected = torch.from_numpy(values.astype(np.float64) / 32767.5 - 1).permute(2, 0, 1)
    torch.testing.assert_close(batch.image[1], expected, rtol=0, atol=1e-7)


def test_mirrored_images_of_16_bits_keep_their_values(tmp_path):
    values = noise(8, 8, 3, dtype=np.uint16, high=65536)
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(png16(values))
    source = folder.source(folder.Options(path=str(tmp_path), size=8, bits=16), "train")
    batch = next(Loader(source, batch=16, seed=0, device=torch.device("cpu"), flip=True))
    plain = torch.from_numpy(values / 32767.5 - 1).permute(2, 0, 1).float()
    kinds = [torch.allclose(x, plain, atol=1e-5) + 2 * torch.allclose(x, plain.flip(2), atol=1e-5) for x in batch.image]
    assert set(kinds) == {1, 2}


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    ("values", "limits"),
    [
        (noise(*SIDE, 1, dtype=np.int16, low=-1024, high=3072), (-1024, 3071)),  # CT in Hounsfield units
        (noise(*SIDE, 1, dtype=np.uint16, high=4096), (0, 4095)),  # 12 bits in 16
        (noise(*SIDE, 3, dtype=np.float32, low=-7, high=9), (-2.5, 4)),
        (noise(*SIDE, 5, dtype=np.uint32, high=1 << 31), (5, 1 << 31)),
        (noise(*SIDE, 1, high=18), (0, 17)),
    ],
    ids=["ct", "12-bit", "float", "uint32", "8-bit"],
)
def test_a_range_of_values_becomes_the_full_range(values, limits, bits):
    channels = values.shape[2]
    x_CHW = pixels(channels=channels, range=limits, bits=bits).decode(tiff(values), "x")
    top = 2**bits - 1
    levels = ((values.astype(np.float64) - limits[0]) / (limits[1] - limits[0])).clip(0, 1) * top
    assert x_CHW.dtype == (np.uint8 if bits == 8 else np.uint16)
    assert np.abs(x_CHW.transpose(1, 2, 0) - levels).max() <= 0.51


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (noise(*SIDE, 1, dtype=np.int16, low=-1024, high=1500), r"int16 from -10\d\d to .*data\.range=\[-10"),
        (noise(*SIDE, 1, dtype=np.uint32, high=1 << 20), r"uint32 .*data\.range"),
        (noise(*SIDE, 1, dtype=np.int32), r"int32 from 0 to 255, .*data\.range=\[0,255\]"),
        (noise(*SIDE, 5, dtype=np.int16), r"int16 from 0 to 255, .*data\.range=\[0,255\]"),
        (noise(*SIDE, 1, dtype=np.float32), r"float32 from 0 to 255, .*data\.range=\[0,255\]"),
        (noise(*SIDE, 3, dtype=np.float32), r"float32 .*data\.range"),
    ],
    ids=["negative", "beyond 16 bits", "8 bits in 32", "8 bits in 16 with a sign", "float", "float RGB"],
)
def test_values_without_a_known_range_are_refused_with_the_setting_that_names_it(values, said):
    with pytest.raises(DataError, match=f"^x: values of {said}"):
        pixels().decode(tiff(values), "x")


def test_values_that_are_not_finite_are_refused():
    values = np.full((*SIDE, 1), np.nan, np.float32)
    for settings in ({"range": (0, 1)}, {}, {"bits": 16}):
        with pytest.raises(DataError, match="not finite"):
            pixels(**settings).decode(tiff(values), "x")


def test_bands_of_tiff_become_channels():
    five = noise(*SIDE, 5)
    four = noise(*SIDE, 4)
    assert np.array_equal(pixels(channels=5).decode(tiff(five), "x"), five.transpose(2, 0, 1))
    assert np.array_equal(pixels(channels=3).decode(tiff(five), "x"), five.transpose(2, 0, 1)[:3])
    assert np.array_equal(pixels(channels=4).decode(tiff(four), "x"), four.transpose(2, 0, 1))  # near infrared
    with pytest.raises(DataError, match=r"4 bands, but the data has 7 channels; pass data\.channels=4"):
        pixels(channels=7).decode(tiff(four), "x")


@pytest.mark.parametrize("bits", [8, 16])
def test_alpha_is_composited_or_kept(bits):
    values = noise(*SIDE, 4).clip(1)
    data = encoded(Image.fromarray(values, "RGBA"), "PNG")
    top = 2**bits - 1
    kept = pixels(channels=4, bits=bits).decode(data, "x").astype(float)
    assert np.array_equal(kept, values.transpose(2, 0, 1) * (top / 255))
    alpha = values[..., 3:] / 255
    over = (values[..., :3] * alpha + 40 * (1 - alpha)).transpose(2, 0, 1) * (top / 255)
    composited = pixels(channels=3, bits=bits, background=40).decode(data, "x")
    assert np.abs(composited - over).max() <= top / 255
    opaque = pixels(channels=4, bits=bits).decode(encoded(Image.fromarray(values[..., :3]), "PNG"), "x")
    assert opaque[3].min() == top


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("bits", [8, 16])
def test_images_of_both_depths_are_upright(orientation, bits):
    image = Image.fromarray(noise(*SIDE, 3))
    exif = image.getexif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(stream.getvalue()))))
    x_CHW = pixels(size=upright.shape[:2], bits=bits).decode(stream.getvalue(), "x")
    assert np.array_equal(x_CHW.transpose(1, 2, 0), upright.astype(int) * (1 if bits == 8 else 257))


@pytest.mark.parametrize("size", [(8, 8), (9, 20), (40, 12), (13, 17)])
@pytest.mark.parametrize("of", [(61, 45), (45, 61), (7, 5), (40, 40)])
def test_the_centre_equals_that_of_pillow_also_at_16_bits(size, of):
    image = Image.fromarray(noise(*of, 3))
    data = encoded(image, "PNG")
    expected = np.asarray(ImageOps.fit(image, size[::-1], Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    assert np.array_equal(pixels(size=size).decode(data, "x"), expected)
    bands = [ImageOps.fit(band.convert("F"), size[::-1], Image.Resampling.LANCZOS) for band in image.split()]
    exact = np.stack([np.asarray(band) for band in bands]).clip(0, 255)  # 8 bits are cut between both directions, too
    assert np.abs(pixels(size=size, bits=16).decode(data, "x") / 257 - exact).max() <= 0.002
    assert np.abs(pixels(size=size, range=(0, 255)).decode(data, "x") - exact).max() <= 0.501


def test_a_narrow_range_further_pages_and_bands_are_said(tmp_path):
    def notices(data, **options):
        for number in range(4):
            (tmp_path / f"{number}.tif").write_bytes(data)
        options = folder.Options(path=str(tmp_path), size=8, **options)
        return " ".join(folder.source(options, "train").notices)

    assert notices(tiff(noise(*SIDE, 3))) == ""
    low = tiff(noise(*SIDE, 1, dtype=np.uint16, high=4096))
    assert "data.range=[" in notices(low)
    assert notices(low, range=(0, 4095)) == ""
    assert "data.range=[" in notices(tiff(noise(*SIDE, 3, high=20)))
    assert "4 bands" in notices(tiff(noise(*SIDE, 4))) and "data.channels=4" in notices(tiff(noise(*SIDE, 4)))
    assert notices(tiff(noise(*SIDE, 4)), channels=4) == ""
    assert notices(tiff(noise(*SIDE, 4), alpha=True)) == ""
    pages = [Image.fromarray(noise(*SIDE, 3, seed=seed)) for seed in range(2)]
    stream = io.BytesIO()
    pages[0].save(stream, "TIFF", save_all=True, append_images=pages[1:])
    assert "3 of 3 images examined have several pages" in notices(stream.getvalue())


def test_values_that_need_a_range_are_no_damage(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.tif").write_bytes(tiff(noise(*SIDE, 1, dtype=np.int16, low=-1024, high=1500)))
    options = folder.Options(path=str(tmp_path), size=8, damaged="skip")
    with pytest.raises(DataError, match=r"data\.range=\[-10\d\d,1\d\d\d\] "):
        folder.source(options, "train")
    report = check_dataset(str(tmp_path))
    assert (report.damaged, report.kinds) == ([], {"16-bit": 4})
    assert any("pass data.range=[-10" in line for line in report.warnings)
    assert "data.range=[-10" in report.command


def test_16_bits_as_images_of_a_program_are_mapped_as_those_of_files():
    x_BCHW = torch.arange(4 * 3 * 64).reshape(4, 3, 8, 8).mul(85).to(torch.uint16)
    source = SampleImages(TensorSource({"image": x_BCHW}, Padding({})), "image")
    shown = source.fetch(np.arange(4))["image"]
    assert torch.equal(shown, (x_BCHW.double() / 257).round().to(torch.uint8))


def test_values_outside_of_the_range_are_cut_before_the_image_is_resized():
    values = np.zeros((16, 16, 1), np.int16)
    values[::2] = 30_000  # a metal implant, above the window of 0 to 100
    x_CHW = pixels(size=(8, 8), channels=1, range=(0, 100)).decode(tiff(values), "x")
    assert abs(x_CHW[:, 2:-2, 2:-2].mean() - 127.5) < 2


@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_16_bits_become_8(name):
    levels = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    x_CHW = pixels(size=(8, 8)).decode(encoded(Image.fromarray(levels), name), "x")
    assert np.array_equal(x_CHW[0], np.rint(levels / 257))


def test_a_transparent_colour_of_a_palette_shows_the_background():
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 9, 9, 9])
    image.info["transparency"] = 1
    assert (pixels(size=(8, 8), background=200).decode(encoded(image, "PNG"), "x") == 200).all()


def test_the_first_frame_of_an_animation_is_read():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("white", "black")]
    stream = io.BytesIO()
    frames[0].save(stream, "GIF", save_all=True, append_images=frames[1:])
    assert pixels(size=(8, 8)).decode(stream.getvalue(), "x").min() == 255


@pytest.mark.parametrize(("crop", "red"), [("center", 0.0), ("squash", 0.5)])
def test_the_middle_is_cropped_or_the_whole_is_resized(crop, red):
    wide = Image.new("RGB", (32, 16), "blue")
    wide.paste((255, 0, 0), (0, 0, 8, 16))
    wide.paste((255, 0, 0), (24, 0, 32, 16))
    assert abs(pixels(size=(8, 8), crop=crop).decode(encoded(wide, "PNG"), "x")[0].mean() / 255 - red) < 0.02


def test_shrinking_averages():
    board = np.indices((64, 64)).sum(0) % 2 * 255
    x_CHW = pixels(size=(8, 8)).decode(encoded(Image.fromarray(board.astype(np.uint8)), "PNG"), "x")
    assert x_CHW.std() < 8 and abs(x_CHW.mean() - 127.5) < 4
