"""`Sampler.apply` with arguments of any type: right in every precision, and one line for what has no meaning."""

import numpy as np
import pytest
import torch
from PIL import Image

import paragan as pg

# one generator that is called by position, one by name
NAMES = ["pix2pix", "superres"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_of_any_precision_give_the_output_of_their_values(image_runs, name, dtype):
    sampler = pg.load(image_runs / name)
    x = (torch.rand(3, 32, 40, dtype=torch.float64) * 2 - 1).to(dtype)
    y = sampler.apply(x, mode="eval")
    assert y.dtype == torch.float32
    assert torch.equal(y, sampler.apply(x.float(), mode="eval"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.complex64])
def test_tensors_without_a_range_are_refused(image_runs, name, dtype):
    with pytest.raises(pg.ConfigError, match=r"floats in \[-1, 1\]"):
        pg.load(image_runs / name).apply(torch.ones(3, 32, 40).to(dtype))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "x", [np.zeros((3, 8, 8), np.float32), {"x": 1}, "a.png", None], ids=["array", "dict", "name", "none"]
)
def test_other_inputs_are_named_by_their_type(image_runs, name, x):
    with pytest.raises(pg.ConfigError, match=type(x).__name__):
        pg.load(image_runs / name).apply(x)


@pytest.mark.parametrize(
    "options",
    [
        {"tile": 0},
        {"tile": -8},
        {"tile": 8.5},
        {"tile": True},
        {"overlap": -1},
        {"overlap": "1"},
        {"tile": 16, "overlap": -4},
        {"tile": 7, "overlap": 100},
        {"mode": "nonsense"},
        {"mode": "train"},
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_options_without_a_meaning_are_refused(image_runs, name, options):
    with pytest.raises(pg.ConfigError, match=next(reversed(options))):
        pg.load(image_runs / name).apply(torch.zeros(3, 32, 40), **options)


@pytest.mark.parametrize("options", [{"tile": 1, "overlap": 0}, {"tile": 16, "overlap": 0}, {"tile": 7, "overlap": 3}])
def test_small_tiles_give_an_output_everywhere(image_runs, options):
    y = pg.load(image_runs / "superres").apply(Image.new("RGB", (11, 9), (90, 200, 10)), **options)
    assert y.size == (44, 36)
    assert np.asarray(y).std((0, 1)).max() < 60


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [list, tuple, iter])
def test_iterables_of_inputs_give_an_iterator_of_results(image_runs, name, make):
    sampler = pg.load(image_runs / name)
    images = [Image.new("RGB", (40, 32), (90, 200, 10)), Image.new("RGB", (32, 48), "red")]
    results = list(sampler.apply(make(images), mode="eval"))
    assert [np.asarray(y).tolist() for y in results] == [
        np.asarray(sampler.apply(image, mode="eval")).tolist() for image in images
    ]


def test_inputs_of_a_generator_are_read_one_after_the_other(image_runs):
    read = []

    def tensors():
        for number in range(3):
            read.append(number)
            yield torch.full((3, 32, 40), number / 3)

    results = pg.load(image_runs / "superres").apply(tensors())
    assert read == []
    assert next(results).shape == (3, 128, 160)
    assert read == [0]


def test_a_wrong_input_within_an_iterable_is_named_by_its_type(image_runs):
    results = pg.load(image_runs / "superres").apply([torch.zeros(3, 32, 40), "a.png"])
    next(results)
    with pytest.raises(pg.ConfigError, match="str"):
        next(results)


def test_options_are_checked_before_the_first_input_is_read(image_runs):
    with pytest.raises(pg.ConfigError, match="tile=0"):
        pg.load(image_runs / "superres").apply(iter(()), tile=0)
