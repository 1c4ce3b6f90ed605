"""The recipe `superres`: reduced copies of images, the networks, a run, and what is refused."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from paragan.datasets import low_resolution
from paragan.loading.loader import Loader
from paragan.models import real_esrgan

SMALL = {
    "data.size": 16,
    "model": {"name": "real_esrgan", "width": 8, "blocks": 1, "d_width": 4},
    "train.batch": 2,
    "penalties.1.weight.from_kimg": 0.006,
    "adversarial.start_kimg": 0.006,
    "adversarial.d_start_kimg": 0.004,
    "every.log_steps": 1,
    "every.sample_kimg": 0.004,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve smooth images."""
    root = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(0)
    for number in range(12):
        small = Image.fromarray(draws.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        small.resize((20, 20), Image.Resampling.BICUBIC).save(root / f"{number}.png")
    return root


def source(folder, **options):
    return low_resolution.source(low_resolution.Options(path=str(folder), size=16, **options), "train")


def test_copies_are_reduced_images(folder):
    found = source(folder, factor=2).fetch(np.arange(4))
    expected = F.interpolate(found["image"].double(), (8, 8), mode="bicubic", antialias=True)
    assert (found["low"].double() - expected.clamp(0, 255)).abs().max() <= 0.51
    alone = source(folder, factor=2).fetch(np.array([3]))
    assert torch.equal(alone["low"][0], found["low"][3])


def test_crops_are_pixels_of_the_file_drawn_by_place(tmp_path):
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (40, 56, 3), dtype=np.uint8)
    for number in range(4):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    train = source(tmp_path)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (16, 16), (0, 1)).reshape(-1, 3, 16, 16)
    known = {window.tobytes() for window in windows}
    first = train.fetch(np.zeros(30, int), np.arange(30), 1)
    corners = {image.numpy().tobytes() for image in first["image"]}
    assert corners <= known and len(corners) > 20
    again = train.fetch(np.zeros(5, int), np.arange(5, 10), 1)
    assert torch.equal(again["image"], first["image"][5:10]) and torch.equal(again["low"], first["low"][5:10])
    held_out = low_resolution.source(low_resolution.Options(path=str(tmp_path), size=16), "held_out")
    centre = pixels[12:28, 20:36].transpose(2, 0, 1)
    assert np.array_equal(held_out.fetch([0], [7], 1)["image"][0], centre)


def test_16_bits_stay_in_both_images(tmp_path):
    for number in range(3):
        levels = np.random.default_rng(number).integers(0, 65536, (24, 24), dtype=np.uint16)
        Image.fromarray(levels).save(tmp_path / f"{number}.png")
    found = source(tmp_path, bits=16, channels=1, factor=2).fetch([0])
    expected = F.interpolate(found["image"].double(), (8, 8), mode="bicubic", antialias=True).clamp(0, 65535)
    assert found["low"].dtype == torch.uint16
    assert (found["low"].double() - expected).abs().max() <= 0.51


def test_filter_and_factor_are_said(folder):
    words = re.findall(r"\w+", source(folder, factor=2).reading)
    assert {"bicubic", "2", "random"} <= set(words)


def test_flips_mirror_both_images_of_a_sample(folder):
    plain, flipped = (Loader(source(folder), 8, 0, torch.device("cpu"), flip=flip) for flip in (False, True))
    a, b = plain.fetch(0), flipped.fetch(0)
    is_flipped = [not torch.equal(x, y) for x, y in zip(a["image"], b["image"], strict=True)]
    assert 0 < sum(is_flipped) < 8
    for name in ("image", "low"):
        for x, y, flip in zip(a[name], b[name], is_flipped, strict=True):
            assert torch.equal(x.flip(2) if flip else x, y)


def test_discriminator_has_a_logit_for_each_pixel():
    d = real_esrgan.Discriminator(real_esrgan.Options(d_width=8), (3, 64, 64))
    assert d(torch.zeros(2, 3, 24, 24)).logits_B.shape == (2, 24, 24)
