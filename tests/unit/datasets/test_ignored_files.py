"""What a data set leaves out is said: links that lead to no file, and classes without training images."""

from __future__ import annotations

import tarfile
import zipfile

import numpy as np
import pytest

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import DataError
from paragan.datasets import folder, imagenet, paired
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset
from paragan.datasets.preparation.prepare import prepare_shards
from tests.image_folders import add_member, png, put

BROKEN = "links that lead to no file, pipes and devices are ignored: 2 ('b/gone.png', 'b/round.png')"
UNTRAINED = "classes without training images are left out, with 1 of the held-out images: 'c'"


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
    assert "images of only 2 classes, 'a', 'd'" in notice


def test_nothing_is_said_of_classes_that_are_complete_or_that_the_run_ignores(only_in_val, linked):
    assert opened(f"data.path={only_in_val}", "data.labels=false") == ()
    assert opened(f"data.path={linked}") == (BROKEN,)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar_file_are_said(tmp_path, mode, kind):
    with tarfile.open(tmp_path / "x.tar", mode) as archive:
        for row in range(3):
            add_member(archive, f"{row}.png", png(row))
        link = tarfile.TarInfo("again.png")
        link.type, link.linkname = kind, "0.png"
        archive.addfile(link)
    images = open_encoded_images(str(tmp_path / "x.tar"))
    assert len(images) == 3 and "1 ('again.png')" in images.notices[0]


@pytest.mark.parametrize("pack", ["zip", "tar", "tgz"])
@pytest.mark.parametrize("names", [("/0.png", "1.png"), ("../0.png", "./1.png"), ("a/../0.png", "//1.png")])
def test_members_above_an_archive_are_read_as_members_in_it(tmp_path, pack, names):
    path = tmp_path / f"x.{pack}"
    if pack == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for row, name in enumerate(names):
                archive.writestr(name, png(row))
    else:
        with tarfile.open(path, "w:gz" if pack == "tgz" else "w") as archive:
            for row, name in enumerate(names):
                add_member(archive, name, png(row))
    images = open_encoded_images(str(path))
    assert [images.name(row) for row in range(2)] == ["0.png", "1.png"] and images.class_names == ()
    assert images.read([0, 1]) == [png(0), png(1)]


def test_the_stamp_of_a_member_follows_its_content(tmp_path):
    stamps = []
    for value in (1, 2):
        with zipfile.ZipFile(tmp_path / f"{value}.zip", "w") as archive:
            for row in range(2):
                archive.writestr(f"{row}.png", png(value))
        stamps.append(open_encoded_images(str(tmp_path / f"{value}.zip")).stamp(0))
    assert len(set(stamps)) == 2
