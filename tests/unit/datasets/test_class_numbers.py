"""Labels of every kind of file are numbered from 0 without gaps, and each class has images in training."""

from __future__ import annotations

import tarfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from paragan.core import rng
from paragan.core.errors import DataError
from paragan.datasets import npz
from paragan.datasets._class_numbers import number_classes
from paragan.datasets._encoded_images import EncodedImages
from paragan.datasets.base.in_memory import stratified_split
from paragan.datasets.preparation.prepare import open_encoded_images
from paragan.datasets.shards import ShardImages
from paragan.storage.shard_folder import ShardFolder
from tests.image_folders import add_member
from tests.prepared_shards import image_folder, prepared

GAPS = [  # stored labels, names of the classes, labels of training
    ([0, 5, 0, 5, 5, 0, 0, 0], ("0", "5"), [0, 1, 0, 1, 1, 0, 0, 0]),
    ([1, 2, 10, 1, 2, 10, 10, 1], ("1", "2", "10"), [0, 1, 2, 0, 1, 2, 2, 0]),
    ([7] * 8, ("7",), [0] * 8),
    ([1000, 40_000, 1000, 40_000, 1000, 40_000, 1000, 40_000], ("1000", "40000"), [0, 1] * 4),
]


def read_npz(tmp_path, labels, **arrays):
    images = np.arange(len(labels) * 64, dtype=np.uint8).reshape(-1, 8, 8)
    np.savez(tmp_path / "a.npz", images=images, labels=labels, **arrays)
    return [npz.source(npz.Options(path=str(tmp_path / "a.npz")), split) for split in ("train", "held_out")]


@pytest.fixture
def images(tmp_path):
    return [path.read_bytes() for path in sorted(image_folder(tmp_path / "images").rglob("*.*"))]


@pytest.mark.parametrize(("stored", "names", "labels"), GAPS)
def test_labels_of_npz_with_gaps_make_no_phantom_classes(tmp_path, stored, names, labels):
    for split in read_npz(tmp_path, np.array(stored)[:, None]):  # of shape (N, 1), as MedMNIST stores them
        assert split.class_names == names
        assert set(split.labels_N.tolist()) <= set(range(len(names)))
        (notice,) = split.notices
        assert f"0 to {len(names) - 1}" in notice


@pytest.mark.parametrize(("stored", "names", "labels"), GAPS)
def test_labels_of_web_dataset_with_gaps_make_no_phantom_classes(tmp_path, images, stored, names, labels):
    with tarfile.open(tmp_path / "w.tar", "w") as archive:
        for number, label in enumerate(stored):
            add_member(archive, f"{number}.png", images[number])
            add_member(archive, f"{number}.cls", b"%d" % label)
    opened = open_encoded_images(str(tmp_path / "w.tar"))
    assert opened.class_names == names
    assert opened.labels.tolist() == labels
    assert len(opened.notices) == 1


@pytest.mark.parametrize(("stored", "names", "labels"), GAPS)
def test_labels_of_parquet_with_gaps_make_no_phantom_classes(tmp_path, images, stored, names, labels):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"image": images[:8], "label": stored}), tmp_path / "t.parquet")
    opened = open_encoded_images(str(tmp_path / "t.parquet"))
    assert opened.class_names == names
    assert opened.labels.tolist() == labels
    assert len(opened.notices) == 1


def test_named_classes_without_images_are_left_out(tmp_path):
    (train, _) = read_npz(tmp_path, np.array([3, 1] * 10), class_names=np.array(list("abcde")))
    assert train.class_names == ("b", "d")
    assert train.class_sizes() == [9, 9]
    assert "'b', 'd'" in train.notices[0]


def test_shards_that_were_prepared_with_phantom_classes_have_none(tmp_path):
    prepared(image_folder(tmp_path / "images"), tmp_path / "out")
    folder = ShardFolder(str(tmp_path / "out"))
    folder.description = replace(folder.description, class_names=("cats", "dogs", "owls"))
    shards = ShardImages(folder, ("first",))
    assert shards.class_names == ("cats", "dogs")
    assert len(shards.notices) == 2


def test_labels_without_gaps_are_unchanged_and_nothing_is_said():
    labels, names, notices = number_classes(np.array([2, 0, 1, 2]), "here")
    assert (labels.tolist(), labels.dtype, names, notices) == ([2, 0, 1, 2], np.int32, ("0", "1", "2"), ())
    assert number_classes(np.array([1, 0]), "here", ("a", "b")).names == ("a", "b")


@pytest.mark.parametrize("labels", [[-1, 0], [-2, 5, 5], [1000, 1001, 1002]])
def test_numbers_that_are_no_classes_are_refused(labels):
    with pytest.raises(DataError, match="here: labels range from"):
        number_classes(np.array(labels), "here")


class _Hashed(EncodedImages):
    def __init__(self, labels, hashes):
        self.labels = None if labels is None else np.array(labels, np.int32)
        self.split_hashes = np.array(hashes, np.uint32)

    def read(self, rows):
        raise NotImplementedError

    def where(self, row):
        raise NotImplementedError

    def _portable_stamps(self):
        raise NotImplementedError


def hashed(labels, seed=0):
    return _Hashed(labels, np.random.default_rng(seed).integers(2**32, size=len(labels)))


@pytest.mark.parametrize("num_classes", [3000, 50])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_every_class_of_an_image_folder_has_training_images(num_classes, share):
    images = hashed(np.arange(num_classes * 2) % num_classes)
    counts = np.bincount(images.labels[images.rows("train", share)], minlength=num_classes)
    assert counts.min() >= 1
    held_out = len(images.rows("held_out", share))
    expected = num_classes * (1 - 0.9**2 if share == 0.1 else 1)  # of two images, the lower hash may be held out
    assert held_out == pytest.approx(expected, abs=4 * num_classes**0.5)


def test_large_classes_have_held_out_images_and_single_images_train():
    images = hashed([0] * 200 + [1] * 10 + [2])
    held_out = images.labels[images.rows("held_out", 0.1)]
    counts = np.bincount(held_out, minlength=3).tolist()
    assert counts[0] > 10
    assert 1 <= counts[1] < 10
    assert counts[2] == 0


def test_an_image_stays_in_its_split_when_others_are_added():
    images = hashed(np.arange(600) % 3)
    first = _Hashed(images.labels[:400], images.split_hashes[:400])
    moved = set(first.rows("held_out", 0.1)) - set(images.rows("held_out", 0.1))
    assert not moved


@pytest.mark.parametrize("labels", [None, [0, 0], [0, 1]])
def test_exactly_one_of_two_images_is_held_out(labels):
    images = _Hashed(labels, [5, 7])
    assert images.rows("held_out", 0.1).tolist() == [0]
    assert images.rows("train", 0.1).tolist() == [1]


def test_a_single_image_of_a_class_in_memory_trains():
    labels = torch.tensor([0] * 7 + [1] + [2] * 6)
    for share in (1 / 2, 1 / 3, 0.1):
        split = stratified_split(labels, share, "npz")
        assert set(labels[split["train"]].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.15, 0.2, 0.3, 1 / 3, 0.35, 0.4, 0.45, 0.5])
def test_the_share_of_arrays_is_held_out(share):
    split = stratified_split(torch.arange(600) % 3, share, "npz")
    assert len(split["held_out"]) == pytest.approx(600 * share, abs=1)
    assert len(split["train"]) + len(split["held_out"]) == 600
    sizes = torch.bincount(split["held_out"] % 3)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 1, 2], [0, 1, 2, 2], [0, 0]])
def test_at_least_one_row_of_arrays_is_held_out(labels):
    split = stratified_split(torch.tensor(labels), 0.1, "npz")
    assert len(split["held_out"]) == 1
    if len(set(labels)) < len(labels):
        assert set(labels) == {labels[row] for row in split["train"]}
    assert stratified_split(torch.zeros(500).long(), 0.1, "npz")["held_out"].tolist() == sorted(
        torch.randperm(500, generator=rng.generator("npz", "split"))[::10].tolist()
    )
