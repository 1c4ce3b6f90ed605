"""The recipe `superres`: reduced copies of images, the networks, a run, and what is refused."""

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
