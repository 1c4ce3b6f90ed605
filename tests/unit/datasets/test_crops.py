"""Crops at the original resolution: drawn by the place in the stream, so ranks and restarts change nothing."""

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import folder, shards
from paragan.datasets.preparation.prepare import prepare_shards
from paragan.loading.loader import Loader

CPU = torch.device("cpu")
HEIGHT, WIDTH = 30, 50


@pytest.fixture
def numbered(tmp_path):
    """Images in which red is the column, green the row and blue the image."""
    for number in range(6):
        pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        pixels[..., 0], pixels[..., 1], pixels[..., 2] = np.arange(WIDTH), np.arange(HEIGHT)[:, None], number
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    return tmp_path / "images"


def opened(path, split="train", size=16, crop="random", **options):
    return folder.source(folder.Options(path=str(path), size=size, crop=crop, **options), split)


def corners(x_BCHW):
    """The left and top of crops, which must hold the pixels of the file unchanged."""
    found = []
    for x_CHW in x_BCHW.int():
        left, top = int(x_CHW[0, 0, 0]), int(x_CHW[1, 0, 0])
        assert torch.equal(x_CHW[0], torch.arange(left, left + x_CHW.shape[2]).expand(x_CHW.shape[1:]).int())
        assert torch.equal(x_CHW[1].T, torch.arange(top, top + x_CHW.shape[1]).expand(x_CHW.shape[:0:-1]).int())
        found.append((left, top))
    return found


@pytest.mark.parametrize("resize", ["lanczos", "bicubic"])
@pytest.mark.parametrize("bits", [8, 16])
def test_random_crops_are_of_the_original_pixels_everywhere_in_the_image(numbered, bits, resize):
    source = opened(numbered, bits=bits, resize=resize)
    rows = np.zeros(300, np.int64)
    x_BCHW = source.fetch(rows, np.arange(300), seed=1)["image"].int() // (1 if bits == 8 else 257)
    lefts, tops = (np.array(sides) for sides in zip(*corners(x_BCHW), strict=True))
    assert (lefts.min(), lefts.max()) == (0, WIDTH - 16)
    assert (tops.min(), tops.max()) == (0, HEIGHT - 16)
    assert abs(np.corrcoef(lefts, tops)[0, 1]) < 0.2


def test_a_crop_depends_on_its_place_and_the_seed_alone(numbered):
    source = opened(numbered)
    whole = Loader(source, batch=8, seed=3, device=CPU)
    batches = [next(whole).image for _ in range(4)]
    shares = [Loader(opened(numbered), batch=8, seed=3, device=CPU, share=share) for share in ((0, 3), (3, 5))]
    for loader in shares:
        loader.position = 2  # resumed
    assert torch.equal(torch.cat([next(loader).image for loader in shares]), batches[2])
    assert not torch.equal(next(Loader(source, batch=8, seed=4, device=CPU)).image, batches[0])


@pytest.mark.parametrize("size", [16, 15, 1])
def test_held_out_images_are_cropped_at_the_centre_at_the_same_scale(numbered, size):
    source = opened(numbered, "held_out", size)
    rows = np.arange(len(source))
    centre = ((WIDTH - size) // 2, (HEIGHT - size) // 2)
    assert set(corners(source.fetch(rows)["image"])) == {centre}
    assert set(corners(source.fetch(rows, rows + 5, seed=7)["image"])) == {centre}
    assert set(corners(opened(numbered, size=size).fetch([0, 1])["image"])) == {centre}  # without a place


@pytest.mark.parametrize("size", ["16x40", "30x50"])
def test_crops_of_any_shape(numbered, size):
    x_BCHW = opened(numbered, size=size).fetch([0] * 50, np.arange(50))["image"]
    assert len(set(corners(x_BCHW))) == (1 if size == "30x50" else len(set(corners(x_BCHW))))
    assert "x".join(map(str, x_BCHW.shape[2:])) == size


def test_images_that_are_smaller_are_enlarged_first(numbered):
    x_BCHW = opened(numbered, size=60).fetch([0] * 20, np.arange(20))["image"]
    assert x_BCHW.shape == (20, 3, 60, 60)
    assert x_BCHW[:, 1].float().std((1, 2)).sub(8.66).abs().max() < 0.3  # the whole height
    assert len({int(x_CHW[0, 0, 0]) for x_CHW in x_BCHW}) > 3


def test_without_a_crop_images_have_the_size_or_are_named(numbered):
    assert corners(opened(numbered, size="30x50", crop="none").fetch([0])["image"]) == [(0, 0)]
    with pytest.raises(DataError, match=r"\.png: 50 x 30 pixels, but data\.crop=none takes 16 x 16"):
        opened(numbered, crop="none").fetch([0])


def test_shards_are_cropped_as_folders_are(numbered, tmp_path):
    prepare_shards(str(numbered), tmp_path / "shards")
    rows, places = np.arange(3), np.arange(7, 10)
    packed = shards.source(shards.Options(path=str(tmp_path / "shards"), size=16, crop="random"), "train")
    assert torch.equal(packed.fetch(rows, places, 5)["image"], opened(numbered).fetch(rows, places, 5)["image"])


def test_another_seed_draws_other_crops(numbered):
    source = opened(numbered)
    rows = np.zeros(20, np.int64)
    places = np.arange(20)
    one, again, other = (corners(source.fetch(rows, places, seed)["image"]) for seed in (1, 1, 2))
    assert one == again != other
