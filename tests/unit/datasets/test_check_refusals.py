"""`data check` says of an image what training says: its size, its bands, and how it is turned."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from paragan.core.option_types import Choice
from paragan.datasets import folder, grey, paired
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.data_refusals import refusal
from tests.image_folders import fill, put


def check(root, **settings):
    words = [f"data.{name}={value}" for name, value in settings.items()]
    return check_dataset(str(root), data=Choice("folder", folder.Options(path=str(root), **settings)), settings=words)


def test_images_of_one_size_are_not_cropped_and_others_are_refused(tmp_path):
    for number in range(4):
        put(tmp_path / f"{number}.png", size=(12, 8), seed=number)
    report = check(tmp_path, crop="none")
    assert report.size == "8x12" and "data.size=8x12" in report.command
    assert not any("cropped" in line for line in report.advice)
    assert "12 x 8" in refusal(lambda: check(tmp_path, crop="none", size=8))
    put(tmp_path / "4.png", size=(12, 9), seed=4)
    assert "12 x 9" in refusal(lambda: check(tmp_path, crop="none"))


@pytest.mark.parametrize("channels", [2, 5, 16])
def test_too_few_bands_are_refused_as_in_training(tmp_path, channels):
    for number in range(3):
        array = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(array).save(tmp_path / f"{number}.png")
    options = folder.Options(path=str(tmp_path), size=8, channels=channels)
    message = refusal(lambda: check(tmp_path, channels=channels))
    assert f"{channels} channels" in message and message[-20:] == refusal(lambda: folder.source(options, "train"))[-20:]


@pytest.mark.parametrize("split", ["train", "held_out"])
@pytest.mark.parametrize(
    ("settings", "cure"),
    [({}, "data.range="), ({"channels": 5}, "data.channels=3"), ({"crop": "none"}, "data.crop=center")],
)
def test_source_refuses_settings_that_do_not_fit_its_images_when_it_is_opened(tmp_path, split, settings, cure):
    for number in range(6):
        values = np.random.default_rng(number).random((12, 12)).astype(np.float32)
        name = f"{'val' if number > 3 else 'train'}/{number}"
        if not settings and name.startswith(split[:3] if split == "train" else "val"):
            put_float(tmp_path / f"{name}.tif", values)
        else:
            put(tmp_path / f"{name}.png", size=(12, 12), seed=number)
    options = folder.Options(path=str(tmp_path), size=8, **settings)
    assert cure in refusal(lambda: folder.source(options, split))


def test_pairs_of_which_some_need_a_range_are_refused_when_they_are_opened(tmp_path):
    for number in range(4):
        values = np.random.default_rng(number).random((8, 16)).astype(np.float32)
        put_float(tmp_path / f"{number}.tif", values) if number == 3 else put(tmp_path / f"{number}.png", size=(16, 8))
    message = refusal(lambda: paired.source(paired.Options(path=str(tmp_path), size=8), "train"))
    assert "range=" in message and "3.tif" in message


def put_float(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_picture_of_halves_is_one_as_it_is_shown(tmp_path, orientation):
    for number in range(3):
        exif = Image.Exif()
        exif[0x0112] = orientation
        put(tmp_path / f"{number}.jpg", size=(24, 12), seed=number, exif=exif)
    assert check(tmp_path).recipe == ("pix2pix-facades" if orientation == 1 else "own")


def test_advice_on_transparency_is_for_three_channels(tmp_path):
    for number in range(3):
        array = np.random.default_rng(number).integers(0, 256, (8, 8, 4), np.uint8)
        Image.fromarray(array).save(tmp_path / f"{number}.png")
    assert [any("transparent" in line for line in check(tmp_path, channels=n).advice) for n in (3, 4)] == [True, False]


def test_colour_photos_for_colourise_are_checked_and_grey_ones_are_said(tmp_path):
    for folder_name, mode in (("photos", "RGB"), ("scans", "L"), ("both", "RGB"), ("both", "L")):
        for number in range(3):
            path = put(tmp_path / folder_name / f"{mode}{number}.png", seed=number)
            Image.open(path).convert(mode).save(path)
    options = {name: grey.Options(path=str(tmp_path / name), size=8) for name in ("photos", "scans", "both")}
    reports = {name: check_dataset(each.path, data=Choice("grey", each)) for name, each in options.items()}
    assert all("train colourise" in report.command for report in reports.values())
    assert not any("channels" in report.command for report in reports.values())
    assert [any("no colours" in line for line in report.advice) for report in reports.values()] == [False, True, False]


@pytest.mark.parametrize("names", [("images", "plots"), ("Photos", "sketches"), ("rgb", "x")])
def test_class_folders_within_a_folder_of_images_are_no_class(tmp_path, names):
    fill(tmp_path, f"{names[0]}/cat/ 3", f"{names[0]}/dog/ 3", f"{names[1]}/ 3")
    assert "'cat', 'dog'" in refusal(lambda: open_encoded_images(str(tmp_path)))
    assert open_encoded_images(str(tmp_path), classes="folders").class_names == tuple(sorted(names))
