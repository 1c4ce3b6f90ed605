"""Sizes of images in settings: one number for a square, or HEIGHTxWIDTH."""

import pytest

from paragan.config import dump, parse_recipe, read_recipe
from paragan.core.errors import ConfigError
from paragan.core.option_types import height_and_width


@pytest.mark.parametrize(
    ("word", "value", "sides"),
    [
        ("224", 224, (224, 224)),
        ("28", 28, (28, 28)),
        ("96x160", "96x160", (96, 160)),
        ("40x24", "40x24", (40, 24)),
        ("64x64", 64, (64, 64)),  # a square has one spelling
        ("'48'", 48, (48, 48)),
    ],
)
def test_size_is_one_number_or_height_and_width(word, value, sides):
    size = read_recipe("own", [f"data.size={word}"]).data.options.size
    assert size == value
    assert height_and_width(size) == sides


@pytest.mark.parametrize(
    "word", ["0", "-8", "96*160", "x160", "96x", "96x160x3", "9000", "true", "1.5", "8x0", "[8,8]"]
)
def test_what_is_no_size_is_refused_with_the_form(word):
    with pytest.raises(ConfigError, match=r"data\.size: must be .*HEIGHTxWIDTH"):
        read_recipe("own", [f"data.size={word}"])


def test_size_survives_the_resolved_config():
    written = read_recipe("own", ["data.size=96x160"])
    assert parse_recipe(dump(written), "config.yaml").data == written.data


@pytest.mark.parametrize(("size", "near"), [("30", "28 or 32"), ("30x44", "28x44 or 32x44"), ("2", "4")])
def test_size_that_the_factor_of_super_resolution_does_not_divide_is_refused_with_the_two_nearest(size, near):
    with pytest.raises(ConfigError, match=f"size={size} is not a multiple of factor=4; use {near}"):
        read_recipe("superres", [f"data.size={size}"])
