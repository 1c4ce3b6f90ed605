"""Pairs of pictures: the halves stay together, and what is drawn depends on the place in the stream alone."""

import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import paired
from paragan.loading.loader import Loader
from paragan.loading.normalise import normalise

SIDE = 32
CPU = torch.device("cpu")


def halves(number):
    """Where a pixel lies is what it shows: rows in red, columns in green; the right half adds the pair in blue."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE].astype(np.uint8)
    left = np.stack([rows * 4, columns * 4, np.full_like(rows, 10 + number)], -1)
    return left, left + np.array([0, 0, 100], np.uint8)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    for part, numbers in (("train", range(12)), ("val", range(12, 18))):
        (folder / part).mkdir()
        for number in numbers:
            Image.fromarray(np.concatenate(halves(number), 1)).save(folder / part / f"{number:02}.png")
    return folder


def source(root, split="train", **wanted):
    options = {"path": str(root), "size": SIDE, "load_size": SIDE, "flip": False} | wanted
    return paired.source(paired.Options(**options), split)


def test_left_is_made_into_right_or_back(root):
    left, right = (torch.from_numpy(half).permute(2, 0, 1) for half in halves(0))
    for direction, (condition, target) in (("a_to_b", (left, right)), ("b_to_a", (right, left))):
        x, given = source(root, direction=direction).fetch([0]).values()
        assert torch.equal(x[0], target) and torch.equal(given[0], condition)
        assert torch.equal(source(root, direction=direction).fetch([0])["image"][0], target)


def test_parts_come_from_the_folders(root):
    assert [len(source(root, split)) for split in ("train", "held_out")] == [12, 6]
    blue = source(root, "held_out").fetch(range(6))["condition"][:, 2, 0, 0]
    assert blue.tolist() == [22, 23, 24, 25, 26, 27]


def moves(root, size=24, **wanted):
    """(top, left, mirrored) of every place, read off what the pixels show; of both halves."""
    data = source(root, size=size, load_size=SIDE, **wanted)
    for row in range(12):
        for place in range(40):
            both = tuple(data.fetch([row], [place], 3).values())
            yield [
                (int(h[0, 0, 0, 0]) // 4, int(h[0, 1, 0].min()) // 4, bool(h[0, 1, 0, 0] > h[0, 1, 0, -1]))
                for h in both
            ]


def test_both_halves_get_the_same_crop_and_flip(root):
    found = list(moves(root, flip=True))
    assert all(x == condition for x, condition in found)
    tops, lefts, mirrored = (set(values) for values in zip(*(x for x, _ in found), strict=True))
    assert tops == lefts == set(range(9))
    assert mirrored == {False, True}
    assert 0.3 < np.mean([x[2] for x, _ in found[:40]]) < 0.7  # of the first row's places


def test_a_pair_is_cropped_anew_in_every_epoch(root):
    loader = Loader(source(root, size=16, load_size=SIDE), 12, 0, CPU)
    epochs = [next(loader).image for _ in range(2)]
    corners = [{int(x[2, 0, 0] * 127.5): (float(x[0, 0, 0]), float(x[1, 0, 0])) for x in epoch} for epoch in epochs]
    assert corners[0].keys() == corners[1].keys() and len(corners[0]) == 12
    assert sum(corners[0][pair] != corners[1][pair] for pair in corners[0]) >= 9


def test_halves_do_not_run_into_each_other(tmp_path):
    wide = np.concatenate([np.zeros((30, 30, 3), np.uint8), np.full((30, 30, 3), 255, np.uint8)], 1)
    for name in "ab":
        Image.fromarray(wide).save(tmp_path / f"{name}.png")
    x, condition = source(tmp_path, size=8, load_size=8, held_out=0.5).fetch([0]).values()
    assert (condition == 0).all() and (x == 255).all()


def test_invalid_pairs_raise_one_line(root, tmp_path):
    with pytest.raises(DataError, match=r"data\.load_size=16 is less than data\.size=32"):
        source(root, load_size=16)
    for name in "ab":
        Image.fromarray(np.zeros((8, 9, 3), np.uint8)).save(tmp_path / f"{name}.png")
    with pytest.raises(DataError, match="9 x 8 pixels are not a pair"):
        source(tmp_path).fetch([0])
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(DataError, match="no images"):
        source(tmp_path / "empty.tar")
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, "w") as archive:
        archive.add(root, "pairs")
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:1500])
    with pytest.raises(DataError, match=r"damaged|ends within"):
        source(tmp_path / "cut.tar")


def test_facades(data_root):
    path = data_root / "facades" / "facades-train-val.tar"
    options = paired.Options(path=str(path), direction="b_to_a")
    train, held_out = (paired.source(options, split) for split in ("train", "held_out"))
    assert (len(train), len(held_out), train.shape) == (400, 100, (3, 256, 256))
    photo, labels = (normalise(x) for x in held_out.fetch(range(4)).values())
    flat = [(x[..., 1:] - x[..., :-1]).abs().lt(0.05).double().mean() for x in (photo, labels)]
    assert flat[1] > 0.8 > flat[0]  # label maps are flat almost everywhere
