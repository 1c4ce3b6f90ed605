"""Files whose names say the side of a pair, as 1_A.png and 1_B.png: pairs, and never single images without a word."""

from __future__ import annotations

import pytest

from paragan.core.option_types import Choice
from paragan.datasets import unpaired
from paragan.datasets._pair_files import find_sides
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.data_refusals import refusal
from tests.image_folders import put
from tests.pair_files import archived, check_pairs, picture, source, write

NAMES = [("{}_A.png", "{}_B.png"), ("x/{}-low.png", "x/{}-high.png"), ("a.{}.lr.png", "a.{}.hr.png")]
NAMES += [("A_{}.png", "B_{}.png"), ("x/low-{}.png", "x/high-{}.png"), ("Inputs/{}.png", "targets/{}.png")]


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
@pytest.mark.parametrize("names", NAMES)
def test_files_of_two_sides_are_pairs(tmp_path, names, kind):
    paths = write(tmp_path / "pairs", names, range(6))
    path = archived(tmp_path / "pairs", kind)
    check_pairs(path, paths)
    report = check_dataset(str(path))
    assert report.pairs.startswith("6 ") and "train pix2pix-facades" in report.command


@pytest.mark.parametrize("names", NAMES)
def test_files_of_two_sides_in_splits_are_pairs_of_each(tmp_path, names):
    write(tmp_path, [f"train/{name}" for name in names], range(5))
    write(tmp_path, [f"test/{name}" for name in names], range(3))
    assert [len(source(tmp_path, split)) for split in ("train", "held_out")] == [5, 3]


@pytest.mark.parametrize("names", NAMES)
def test_files_of_two_sides_are_no_single_images(tmp_path, names):
    write(tmp_path, names, range(6))
    assert "data.name=paired" in refusal(lambda: open_encoded_images(str(tmp_path)))
    assert len(open_encoded_images(str(tmp_path), classes="none")) == 12


def test_one_file_of_neither_side_leaves_single_images(tmp_path):
    write(tmp_path, NAMES[0], range(6))
    picture(0).save(tmp_path / "cover.png")
    assert len(open_encoded_images(str(tmp_path))) == 13


def test_letters_as_names_of_files_are_no_sides(tmp_path):
    for name in ("a", "b", "c.1", "photo_a_1", "xa_1", "xb_1"):
        picture(len(name)).save(tmp_path / f"{name}.png")
    assert find_sides(sorted(path.name.encode() for path in tmp_path.iterdir())) is None


def test_check_does_not_take_the_names_of_kinds_for_sides(tmp_path):
    """A name with `*` or words of a setting in it is only a name."""
    for name in ("day*", "night data.damaged=skip"):
        for number in range(4):
            put(tmp_path / name / f"{number}.png", size=(16, 16), seed=number)
    options = unpaired.Options(path=str(tmp_path))
    report = check_dataset(str(tmp_path), data=Choice("unpaired", options))
    assert report.sides_from == "" and not any("sides of pairs" in line for line in report.advice)
    assert "data.damaged" not in report.command and report.num_without_partner == 0
