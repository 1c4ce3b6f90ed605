"""What a data set leaves out is said: links that lead to no file, and classes without training images."""

from __future__ import annotations

import numpy as np
import pytest

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import DataError
from paragan.datasets import folder, imagenet, paired
from paragan.datasets.preparation.dataset_check import check_dataset
from paragan.datasets.preparation.prepare import prepare_shards
from tests.image_folders import put

BROKEN = "links that lead to no file, pipes and devices are ignored: 2 ('b/gone.png', 'b/round.png')"
UNTRAINED = "classes without training images are left out, also of the held-out ones: 'c'"


@pytest.fixture
def linked(tmp_path):
    """Images of two classes, a link that is fine, one to nothing and one to itself."""
    for number in range(6):
        put(tmp_path / "links" / "ab"[number % 2] / f"{number}.png", seed=number, size=(16, 8))
    (tmp_path / "links" / "b" / "fine.png").symlink_to(tmp_path / "links" / "a" / "0.png")
    (tmp_path / "links" / "b" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "links" / "b" / "round.png").symlink_to("round.png")
    return tmp_path / "links"


def test_broken_links_are_counted_and_named_wherever_a_folder_of_images_is_read(linked, tmp_path):
    pairs = paired.source(paired.Options(path=str(linked), size=8), "train")
    of_folder = folder.source(folder.Options(path=str(linked), size=8), "train")
    shards = prepare_shards(str(linked), tmp_path / "shards")
    report = check_dataset(str(linked))
    assert report.images == 7
    assert pairs.notices == of_folder.notices == shards.notices == report.warnings == (BROKEN,)


def test_a_folder_of_broken_links_alone_says_why_it_has_no_images(tmp_path):
    (tmp_path / "a.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"no images .*links that lead to no file.* ignored: 1 \('a.png'\)"):
        folder.source(folder.Options(path=str(tmp_path), size=8), "train")


def test_broken_links_in_a_split_of_imagenet_are_said(tmp_path):
    for part in ("train", "val"):
        for wnid in ("n00000001", "n00000002"):
            put(tmp_path / part / wnid / "1.png", seed=1)
    (tmp_path / "train" / "n00000002" / "2.png").symlink_to(tmp_path / "nowhere.png")
    notices = [imagenet.source(imagenet.Options(str(tmp_path), 8), split).notices for split in ("train", "held_out")]
    assert notices == [("links that lead to no file, pipes and devices are ignored: 1 ('train/n00000002/2.png')",), ()]


def opened(*words):
    return build.open_data(read_recipe("own", ["data.size=8", *words])).train.notices


@pytest.fixture
def only_in_val(tmp_path):
    for name in ("train/a/1.png", "train/b/2.png", "val/a/3.png", "val/c/4.png"):
        put(tmp_path / "data" / name, seed=1)
    return tmp_path / "data"


def test_a_class_without_training_images_is_named_for_folders_and_shards(only_in_val, tmp_path):
    prepare_shards(str(only_in_val), tmp_path / "shards")
    for words in ([f"data.path={only_in_val}"], ["data.name=shards", f"data.path={tmp_path / 'shards'}"]):
        (notice,) = opened(*words)
        assert notice.startswith(UNTRAINED)
    (notice,) = check_dataset(str(only_in_val)).warnings
    assert notice.startswith(UNTRAINED)


def test_a_class_without_training_images_is_named_for_arrays(tmp_path):
    images = np.zeros((40, 8, 8, 3), np.uint8)
    labels = np.arange(40) % 2 * 3  # none of 1 and 2
    np.savez(tmp_path / "data.npz", images=images, labels=labels, class_names=list("abcde"))
    (notice,) = opened("data={name: npz, path: " + str(tmp_path / "data.npz") + "}")
    assert "only 2 classes have images, 'a', 'd'" in notice


def test_nothing_is_said_of_classes_that_are_complete_or_that_the_run_ignores(only_in_val, linked):
    assert opened(f"data.path={only_in_val}", "data.labels=false") == ()
    assert opened(f"data.path={linked}") == (BROKEN,)
