"""Images of two kinds: unequal numbers, test folders that are held out, and what is said of both."""

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import unpaired


def write(root, folder, levels):
    (root / folder).mkdir(parents=True)
    for number, level in enumerate(levels):
        Image.new("RGB", (8, 8), (level,) * 3).save(root / folder / f"{number}.png")


def source(root, split="train", **options):
    return unpaired.source(unpaired.Options(path=str(root), size=8, **options), split)


def levels(root, split, **options):
    """Grey levels of A and of B in a split."""
    data = source(root, split, **options)
    both = data.fetch(np.arange(len(data)), np.arange(50, 50 + len(data)))["both"]
    return set(both[..., 0, 0, 0].tolist()), set(both[..., 0, 0, 15].tolist())


@pytest.mark.parametrize("names", [("A", "B"), ("horses", "zebras")])
@pytest.mark.parametrize("count", [2, 5, 9])
def test_both_splits_have_images_of_a_small_kind(tmp_path, names, count):
    write(tmp_path, names[0], range(count))
    write(tmp_path, names[1], range(100, 130))
    parts = [levels(tmp_path, split)[0] for split in ("train", "held_out")]
    assert all(parts) and parts[0] | parts[1] == set(range(count)) and not parts[0] & parts[1]


@pytest.mark.parametrize("damaged", ["A", "B", "AB"])
def test_both_splits_have_images_of_a_kind_whose_held_out_images_are_damaged(tmp_path, monkeypatch, damaged):
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "data"
    write(root, "A", range(4))
    write(root, "B", range(100, 104))
    for level in (*levels(root, "held_out")[0], *levels(root, "held_out")[1]):
        file = root / "AB"[level >= 100] / f"{level % 100}.png"
        if file.parent.name in damaged:
            file.write_text("no image")
    train, held_out = (levels(root, split, damaged="skip") for split in ("train", "held_out"))
    assert len(train[0] | held_out[0]) == len(train[0]) + len(held_out[0]) == 3 + ("A" not in damaged)
    assert held_out[0] and held_out[1] and not train[1] & held_out[1]


LAYOUTS = {
    "trainA": ("trainA", "trainB", "testA", "testB"),
    "train/A": ("train/A", "train/B", "test/A", "test/B"),
    "A/train": ("A/train", "B/train", "A/val", "B/val"),
    "TrainA": ("Train_A", "Train_B", "Test_A", "Test_B"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_test_folders_are_held_out(tmp_path, layout):
    a, b, test_a, test_b = LAYOUTS[layout]
    write(tmp_path, a, range(10))
    write(tmp_path, b, range(100, 130))
    write(tmp_path, test_a, range(50, 53))
    write(tmp_path, test_b, range(200, 202))
    train = levels(tmp_path, "train")
    assert train[0] == set(range(10)) and train[1] <= set(range(100, 130)) and len(train[1]) > 5
    assert levels(tmp_path, "held_out") == ({50, 51, 52}, {200, 201})
    text = source(tmp_path).reading
    assert "13 images, 3 held out" in text and "32 images, 2 held out" in text


def test_names_of_folders_choose_the_direction(tmp_path):
    for folder, level in (("trainA", 0), ("trainB", 100), ("testA", 50), ("testB", 200)):
        write(tmp_path, folder, range(level, level + 4))
    assert levels(tmp_path, "held_out", a="trainB", b="trainA")[0] == {200, 201, 202, 203}
    assert levels(tmp_path, "held_out", a="trainA")[0] == {50, 51, 52, 53}


def test_images_of_other_folders_are_said(tmp_path):
    for folder, level in (("horses", 0), ("zebras", 100), ("dogs", 50)):
        write(tmp_path, folder, range(level, level + 20))
    assert "20 other" in source(tmp_path, a="horses", b="zebras").reading
    (tmp_path / "x").mkdir()
    for folder in ("trainA", "trainB", "notes"):
        write(tmp_path / "x", folder, range(20))
    assert "20 other" in source(tmp_path / "x").reading


def test_two_kinds_are_required(tmp_path):
    for folder in ("one", "two", "three"):
        write(tmp_path, folder, range(3))
    with pytest.raises(DataError, match=r"one, three, two.*data\.a=NAME"):
        source(tmp_path)
