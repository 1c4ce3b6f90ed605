"""`data.resize=bicubic`: Pillow's bicubic filter within one level, whatever is resized at the same time."""

import io
import os
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _batched_resize, _image_decoding, _image_source, folder, imagenet, shards
from paragan.datasets._batched_resize import resize_in_groups
from paragan.datasets._options import PixelOptions
from paragan.loading import open_images
from tests.prepared_shards import image_folder, prepared

BICUBIC = Image.Resampling.BICUBIC
SIZES = [(61, 45), (45, 61), (7, 5), (1, 3), (40, 40), (33, 32), (300, 8)]  # larger and smaller than 32


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 0)


def noise(width, height, channels=3, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def encoded(image):
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def by_pillow(image, size, crop=True):
    """The centred square of whole pixels, rounded to the left and to the top, and Pillow's filter."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)) if crop else image
    of_width = square.resize((size, square.height), BICUBIC)  # Pillow starts with the height of high images
    return _image_decoding.to_chw_array(of_width.resize((size, size), BICUBIC)).astype(int)


def resized(data, size, channels=3, crop=True):
    pixels = _batched_resize.decode_unresized(
        data, "x", (size, size), PixelOptions(channels=channels, crop="center" if crop else "squash")
    )
    ((_, x_CHW),) = resize_in_groups([(0, pixels)], (channels, size, size))
    return x_CHW


@pytest.fixture
def photos(tmp_path):
    """Thirty images of seven sizes, in turn."""
    for number in range(30):
        noise(*SIZES[number % len(SIZES)], seed=number).save(tmp_path / f"{number:02}.png")
    return tmp_path


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop", [True, False])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_bicubic_equals_pillow_within_one_level(width, height, crop, channels):
    image = noise(width, height, channels)
    x_CHW = resized(encoded(image), 32, channels, crop)
    assert x_CHW.shape == (channels, 32, 32)
    assert np.abs(x_CHW - by_pillow(image, 32, crop)).max() <= 1


def test_square_crop_rounds_to_the_left_and_to_the_top():
    wide, high = noise(9, 6), noise(6, 9)
    assert np.array_equal(resized(encoded(wide), 6).transpose(1, 2, 0), np.asarray(wide)[:, 1:7])
    assert np.array_equal(resized(encoded(high), 6).transpose(1, 2, 0), np.asarray(high)[1:7])


@pytest.mark.parametrize("group_bytes", [1, 10_000, 1 << 20])
def test_bicubic_pixels_do_not_depend_on_the_images_resized_with_them(photos, monkeypatch, group_bytes):
    source = open_images(photos, size=32, resize="bicubic")
    rows = np.arange(len(source))
    one_by_one = torch.cat([source.fetch([row])["image"] for row in rows])
    monkeypatch.setattr(_batched_resize, "_GROUP_BYTES", group_bytes)
    assert torch.equal(source.fetch(rows)["image"], one_by_one)
    assert torch.equal(source.fetch(rows[::-1])["image"].flip(0), one_by_one)


def test_cached_bicubic_images_are_those_of_the_files(photos, monkeypatch):
    uncached = open_images(photos, size=32, resize="bicubic")
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 1 << 20)
    source = open_images(photos, size=32, resize="bicubic")
    rows = np.arange(len(source))
    first, again = source.fetch(rows)["image"], source.fetch(rows)["image"]
    assert not any(source.read(rows))
    assert torch.equal(first, again)
    assert torch.equal(first, uncached.fetch(rows)["image"])


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads by /proc")
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="torch divides images without AVX2")
def test_bicubic_starts_no_threads_of_torch():
    images = [(number, np.ascontiguousarray(noise(300, 300, seed=number)).transpose(2, 0, 1)) for number in range(8)]
    done = threading.Barrier(3, timeout=60)

    def resize():
        list(resize_in_groups(images, (3, 256, 256)))
        done.wait()
        done.wait()

    torch.set_num_threads(4)  # every test sets it to 1 before it starts
    before = len(os.listdir("/proc/self/task"))
    workers = [threading.Thread(target=resize) for _ in range(2)]
    for worker in workers:
        worker.start()
    done.wait()
    meanwhile = len(os.listdir("/proc/self/task"))
    done.wait()
    for worker in workers:
        worker.join()
    assert meanwhile <= before + 2  # a thread of an earlier test may end meanwhile


def test_image_too_large_to_copy_is_resized_by_pillow(monkeypatch):
    image = noise(61, 45)
    monkeypatch.setattr(_image_decoding, "MAX_BYTES", 61 * 45 * 7 - 1)
    expected = _image_decoding.to_chw_array(image.resize((32, 32), BICUBIC, (8, 0, 53, 45)))
    assert np.array_equal(_batched_resize.decode_unresized(encoded(image), "x", (32, 32), PixelOptions()), expected)


def test_large_image_is_copied_strip_by_strip(monkeypatch):
    image = noise(61, 45)
    expected = _batched_resize.decode_unresized(encoded(image), "x", (32, 32), PixelOptions())
    monkeypatch.setattr(_image_decoding, "STRIP_PIXELS", 100)
    assert np.array_equal(_batched_resize.decode_unresized(encoded(image), "x", (32, 32), PixelOptions()), expected)


@pytest.mark.parametrize("module", [folder, shards, imagenet])
def test_resize_is_in_the_fingerprint(tmp_path, module):
    path = tmp_path / "images"
    if module is imagenet:
        for name in ("train/n00000001", "train/n00000002", "val/n00000001", "val/n00000002"):
            (path / name).mkdir(parents=True)
            noise(20, 30).save(path / name / "1.JPEG")
    else:
        image_folder(path, side=20)
    if module is shards:
        prepared(path, tmp_path / "shards")
        path = tmp_path / "shards"
    plain, same, bicubic = (
        module.source(module.Options(path=str(path), size=16, **more), "train")
        for more in ({}, {"resize": "lanczos"}, {"resize": "bicubic"})
    )
    assert plain.fingerprint == same.fingerprint != bicubic.fingerprint
    rows = np.arange(len(plain))
    x, y = (source.fetch(rows)["image"].int() for source in (plain, bicubic))
    assert not torch.equal(x, y)


def test_unknown_filter_is_refused(photos):
    with pytest.raises(DataError, match=r"data\.resize='area' is not a filter; use lanczos or bicubic"):
        open_images(photos, resize="area")


@pytest.mark.parametrize("resize", ["lanczos", "bicubic"])
@pytest.mark.parametrize(("of", "part"), [((50, 61), (50, 25)), ((90, 20), (40, 20)), ((40, 20), (40, 20))])
def test_rectangles_are_of_the_largest_part_of_their_ratio(tmp_path, resize, of, part):
    """of, part: width and height of an image, and of its part that is not black."""
    image = Image.new("RGB", of)
    x_HWC = np.full((part[1], part[0], 3), 255, np.uint8)
    x_HWC[:, -part[0] // 8 :, 0] = x_HWC[-part[1] // 5 :, :, 1] = 128  # the right and the lower edge
    image.paste(Image.fromarray(x_HWC), ((of[0] - part[0]) // 2, (of[1] - part[1]) // 2))
    for name in "ab":
        image.save(tmp_path / f"{name}.png")
    source = folder.source(folder.Options(path=str(tmp_path), size="20x40", resize=resize), "train")
    x_BCHW = source.fetch([0])["image"]
    assert x_BCHW.shape == (1, 3, 20, 40)
    assert x_BCHW[:, 2].min() > 230  # Pillow's filter reads a little beyond its box
    assert (x_BCHW[0, 0] < 200).float().mean() == pytest.approx(1 / 8, abs=0.03)
    assert (x_BCHW[0, 1] < 200).float().mean() == pytest.approx(1 / 5, abs=0.03)
    whole = folder.source(folder.Options(path=str(tmp_path), size="20x40", resize=resize, crop="squash"), "train")
    assert (whole.fetch([0])["image"].min() == 0) == (of != part)
