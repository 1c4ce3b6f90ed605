"""The recipe `colourise`: grey copies of colour photos, mirrored together, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.datasets import grey
from paragan.datasets.base.whole_images import decode_whole
from paragan.loading.loader import Loader


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.png")
    return root


def source(folder, split="train", **options):
    return grey.source(grey.Options(path=str(folder), size=16, **options), split)


def test_copies_are_the_grey_that_apply_makes(folder):
    photos = source(folder)
    assert photos.has_pairs and photos.condition_channels == 1 and photos.shape == (3, 16, 16)
    samples = photos.fetch(np.arange(6))
    for row in range(6):
        file = photos.where(row)
        with open(file, "rb") as opened:
            expected = decode_whole(opened.read(), file, 1)
        assert torch.equal(samples["condition"][row].float() / 127.5 - 1, expected)


def test_copies_of_all_levels_are_rounded_luma():
    levels = torch.arange(256, dtype=torch.uint8)
    x_BCHW = torch.stack(torch.meshgrid(levels[::5], levels[::3], levels[::5], indexing="ij")).flatten(2)[None]
    expected = (x_BCHW[0].double() * torch.tensor([0.299, 0.587, 0.114]).double().view(3, 1, 1)).sum(0)
    assert (grey.grey(x_BCHW)[0, 0].double() - expected).abs().max() <= 0.51


def test_16_bits_stay_in_both_images(tmp_path):
    levels = np.random.default_rng(0).integers(0, 65536, (24, 24), np.uint16)
    for number in range(3):
        Image.fromarray(levels + np.uint16(number)).save(tmp_path / f"{number}.png")
    samples = source(tmp_path, bits=16).fetch([0])
    assert samples["condition"].dtype == torch.uint16
    assert (samples["condition"][:, 0].int() - samples["image"][:, 0].int()).abs().max() <= 1  # grey stays grey


@pytest.mark.parametrize("bits", [8, 16])
def test_flips_mirror_both_images_and_only_in_training(folder, bits):
    sources = (source(folder, flip=flip, bits=bits) for flip in (False, True))
    plain, flipped = (Loader(data, 8, 0, torch.device("cpu")) for data in sources)
    a, b = ({name: x.int() for name, x in loader.fetch(0).items()} for loader in (plain, flipped))
    is_flipped = [not torch.equal(x, y) for x, y in zip(a["image"], b["image"], strict=True)]
    assert 0 < sum(is_flipped) < 8
    for name in ("image", "condition"):
        for x, y, flip in zip(a[name], b[name], is_flipped, strict=True):
            assert torch.equal(x.flip(2) if flip else x, y)
    again = Loader(source(folder, flip=True, bits=bits), 8, 0, torch.device("cpu")).fetch(0)
    assert torch.equal(again["image"].int(), b["image"])
    held_out, mirrored = (source(folder, "held_out", held_out=0.5, flip=flip) for flip in (False, True))
    rows = np.arange(len(held_out))
    assert torch.equal(held_out.fetch(rows, rows, 1)["image"], mirrored.fetch(rows, rows, 1)["image"])


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channels_than_colour_are_refused(folder, channels):
    with pytest.raises(ConfigError, match=r"channels"):
        read_recipe("colourise", [f"data.path={folder}", f"data.channels={channels}"])
