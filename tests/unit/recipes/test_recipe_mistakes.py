"""Settings that do not fit a recipe are refused in one line."""

import pytest
from PIL import Image

import paragan as pg
from tests.unit.recipes import (
    test_codec_recipe as codec,
    test_superres_recipe as superres,
    test_translate_recipe as translate,
    test_vqgan_recipe as vqgan,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of two kinds."""
    root = tmp_path_factory.mktemp("kinds")
    for name, level in (("dark", 0), ("bright", 200)):
        (root / name).mkdir()
        for number in range(8):
            Image.new("RGB", (16, 16), (level + number,) * 3).save(root / name / f"{number}.png")
    return root


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("codec", {"model.rates": [3, 5]}, "N a multiple of 15, not 1x1024"),
        ("codec", {"model.windows": [2048]}, "N at least 2048, the longest of model.windows, not 1x1024"),
        ("codec", {"balancer.weights": {"mel": 1}}, "balancer.weights.mel: G has no such term; its terms are"),
        ("digits", {"data": {"name": "speech"}}, "model .* generates images, but a sample of data speech has audio"),
        ("vocoder", {"model.rates": [4, 5]}, "N a multiple of 20, not 1x4096"),
        ("digits", {"penalties": ["log_mel"]}, "penalty log_mel does not support model dcgan"),
        ("digits", {"penalties": ["codebook"]}, "penalty codebook does not support model dcgan"),
        ("vqgan-cifar10", {"model.halvings": 5}, "not a multiple of 32, which model.halvings=5 needs"),
        (
            "superres",
            {"model.factor": 2},
            r"forward\(low\) returned a tensor of \(2, 3, 8, 8\); return one of",
        ),
        (
            "superres",
            {"data.size": 12, "data.factor": 2, "model.factor": 8},
            "not a multiple of 8, .* use 8 or 16",
        ),
        (
            "translate",
            {"data.a": "dark"},
            "needs two sub-folders of images, but these are there: bright, dark; pass data.a=NAME",
        ),
        ("translate", {"data.flip": True}, "data.flip=true would exchange A and B; use data.flip=false"),
        ("translate", {"model.identity": False}, "penalty cycle needs the output 'identity' of G; use model cyclegan"),
    ],
)
def test_setting_that_does_not_fit_is_one_line(folder, tmp_path, recipe, settings, message):
    small = {
        "codec": codec.SMALL,
        "vqgan-cifar10": vqgan.DIGITS,
        "superres": {**superres.SMALL, "data.path": str(folder / "dark")},
        "translate": {**translate.SMALL, "data.path": str(folder)},
    }
    with pytest.raises(pg.ParaganError, match=message) as error:
        pg.train(recipe, {**small.get(recipe, {}), **settings}, out=tmp_path / "run")
    assert "\n" not in str(error.value)
