"""Values of pairs above 8 bits: ranges of either image, what is said of them, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.core.option_types import Choice
from paragan.datasets import paired
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.pair_files import picture, source


def write_levels(path, number, top, dtype):
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = np.random.default_rng(number).integers(0 if dtype != np.int16 else -1000, top, (16, 16)).astype(dtype)
    Image.fromarray(levels).save(path)
    return levels


@pytest.mark.parametrize(
    ("dtype", "top", "limits", "suffix"),
    [(np.uint16, 4096, (0, 4095), "png"), (np.int16, 1000, (-1000, 999), "tif"), (np.float32, 50, (0, 49), "tif")],
)
@pytest.mark.parametrize("direction", ["a_to_b", "b_to_a"])
def test_range_of_either_image_maps_its_values(tmp_path, dtype, top, limits, suffix, direction):
    levels = [write_levels(tmp_path / f"A/{number}.{suffix}", number, top, dtype) for number in range(2)]
    for number in range(2):
        (tmp_path / "B").mkdir(exist_ok=True)
        picture(number, (16, 16)).save(tmp_path / f"B/{number}.png")
    key, name = ("condition_range", "condition") if direction == "a_to_b" else ("range", "image")
    data = source(tmp_path, "held_out", held_out=0.5, direction=direction, **{key: limits})
    found = data.fetch([0])[name][0].numpy()
    expected = [np.rint((x.astype(float) - limits[0]) / (limits[1] - limits[0]) * 255)[None] for x in levels]
    assert any(np.array_equal(found, each) for each in expected)
    with pytest.raises(ValueError, match="range"):
        paired.Options(**{key: (3, 1)})


def test_hardly_used_range_is_said_and_values_without_a_range_name_the_setting(tmp_path):
    for number in range(3):
        write_levels(tmp_path / f"a/A/{number}.png", number, 4096, np.uint16)
        write_levels(tmp_path / f"b/A/{number}.tif", number, 1000, np.int16)
        for folder in "ab":
            (tmp_path / folder / "B").mkdir(exist_ok=True)
            picture(number, (16, 16)).save(tmp_path / folder / f"B/{number}.png")
    assert any("A: " in line and "data.condition_range=" in line for line in source(tmp_path / "a").notices)
    assert any("data.range=" in line for line in source(tmp_path / "a", direction="b_to_a").notices)
    with pytest.raises(DataError, match=r"A/.*data\.condition_range="):
        source(tmp_path / "b")


@pytest.mark.parametrize("suffix", ["png", "jpg"])
@pytest.mark.parametrize("key", ["range", "condition_range"])
def test_range_that_cuts_most_values_of_one_side_is_said_once_by_check_and_training(tmp_path, suffix, key):
    for number in range(3):
        for folder in "AB":
            (tmp_path / folder).mkdir(exist_ok=True)
            picture(number, (16, 16)).save(tmp_path / folder / f"{number}.{suffix}")
    limits = {key: (0, 1)}
    report = check_dataset(str(tmp_path), data=Choice("paired", paired.Options(path=str(tmp_path), size=16, **limits)))
    for lines in (source(tmp_path, **limits).notices, report.warnings):
        assert [f"data.{key}=[0,1]" in line for line in lines if "range" in line] == [True]


@pytest.mark.parametrize(
    ("tops", "named"),
    [((4096, 65536), ["condition_range"]), ((65536, 4096), ["range"]), ((4096, 256), ["condition_range", "range"])],
)
def test_check_names_the_range_of_each_side_that_needs_one(tmp_path, tops, named):
    for number in range(3):
        for folder, top in zip("AB", tops, strict=True):
            write_levels(tmp_path / folder / f"{number}.png", number, top, np.uint16)
    words = check_dataset(str(tmp_path)).command.split()
    assert sorted(word.removeprefix("'data.").partition("=")[0] for word in words if "range=" in word) == named


def test_check_names_one_range_for_both_halves_of_a_picture(tmp_path):
    for number in range(3):
        levels = np.random.default_rng(number).integers(0, 4096, (16, 32)).astype(np.uint16)
        Image.fromarray(levels).save(tmp_path / f"{number}.png")
    report = check_dataset(str(tmp_path))
    assert report.range == report.condition_range and report.range is not None
    assert "data.range=" in report.command and "data.condition_range=" in report.command
