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
    "x", [np.zeros((3, 8, 8), np.float32), ["a.png"], "a.png", None], ids=["array", "list", "name", "none"]
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
    y = pg.load(image_runs / "superres").apply(Image.new("RGB", (40, 32), (90, 200, 10)), **options)
    assert y.size == (160, 128)
    assert np.asarray(y).std((0, 1)).max() < 60
