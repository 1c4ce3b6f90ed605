"""A folder of pictures: what lies in it, which part and class it belongs to, and how any kind of picture is decoded."""

import itertools
import os
import shutil
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _image_source, folder
from paragan.datasets.base.open_reader import open_reader
from tests.data_refusals import record_reads, refusal
from tests.image_folders import put


def read(root, split="train", size=8, **options):
    return folder.source(folder.Options(path=str(root), size=size, **options), split)


def refused(path, split="train"):
    return refusal(lambda: read(path, split).fetch([0]))


def listing(source):
    return [source._images.name(row) for row in source._rows.tolist()]


def test_classes_are_the_folders_at_the_top(tmp_path):
    for name in ("dogs/a.png", "cats/b.png", "cats/deep/er/c.png", "cats/.hidden.png", ".git/d.png", "cats/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    train, held_out = read(tmp_path), read(tmp_path, "held_out")
    assert train.class_names == held_out.class_names == ("cats", "dogs")
    found = {}
    for source in (train, held_out):
        found |= dict(zip(listing(source), source.labels.tolist(), strict=True))
    assert found == {"cats/b.png": 0, "cats/deep/er/c.png": 0, "dogs/a.png": 1}


@pytest.mark.parametrize("alone", ["", "photos/", "photos/inner/"])
def test_single_root_folder_is_skipped(tmp_path, alone):
    """As archives like to unpack one; the parts and classes in it count."""
    for name in ("train/cats/a.png", "train/dogs/b.png", "val/cats/c.png", "val/dogs/d.png"):
        put(tmp_path / f"{alone}{name}")
    train, held_out = read(tmp_path), read(tmp_path, "held_out")
    assert listing(train) == [f"{alone}train/cats/a.png", f"{alone}train/dogs/b.png"]
    assert listing(held_out) == [f"{alone}val/cats/c.png", f"{alone}val/dogs/d.png"]
    assert train.class_names == ("cats", "dogs")
    assert held_out.fetch([1])["label"].tolist() == [1]


def test_image_stays_in_its_split_when_others_are_added(tmp_path):
    for number in range(200):
        (tmp_path / f"{number}.png").touch()
    before = set(listing(read(tmp_path, "held_out")))
    for number in range(200, 300):
        (tmp_path / f"{number}.png").touch()
    after = set(listing(read(tmp_path, "held_out")))
    assert before < after
    assert 5 < len(before) < 40
    assert not after & set(listing(read(tmp_path)))
    assert len(after) + len(read(tmp_path)) == 300


def test_two_images_are_one_per_split(tmp_path):
    put(tmp_path / "a.png"), put(tmp_path / "b.png")
    assert len(read(tmp_path)) == len(read(tmp_path, "held_out")) == 1


def test_links_are_followed_but_not_in_circles(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    put(root / "a/1.png"), put(elsewhere / "2.png")
    (root / "b").symlink_to(elsewhere)
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to("self")
    (root / "a" / "gone.png").symlink_to("nowhere")
    found = sorted(listing(read(root)) + listing(read(root, "held_out")))
    assert found == ["a/1.png", "b/2.png"]


def test_a_folder_may_be_linked_to_from_several_classes(tmp_path):
    root = tmp_path / "root"
    put(tmp_path / "shared/1.png")
    for name in ("a", "b", "c"):
        (root / name).mkdir(parents=True)
        (root / name / "more").symlink_to(tmp_path / "shared")
    found = sorted(listing(read(root)) + listing(read(root, "held_out")))
    assert found == ["a/more/1.png", "b/more/1.png", "c/more/1.png"]


def test_links_that_multiply_are_refused(tmp_path):
    folders = [tmp_path / f"{n}" for n in range(30)]  # 2³⁰ ways from the first to the last
    for path in folders:
        path.mkdir()
    for path, target in itertools.pairwise(folders):
        (path / "a").symlink_to(target)
        (path / "b").symlink_to(target)
    assert "symbolic links lead to this folder on more than 64 paths" in refused(tmp_path)


def test_a_member_of_a_zip_without_a_name_is_left_out(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("x", "a.png", "b.png"):
            archive.writestr(name, b"")
    content = bytearray((tmp_path / "a.zip").read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 28 : place + 32] = b"\0\0\1\0"  # no name, and what was the name is an extra field
    (tmp_path / "a.zip").write_bytes(content)
    source = read(tmp_path / "a.zip")
    assert sorted(listing(source) + listing(read(tmp_path / "a.zip", "held_out"))) == ["a.png", "b.png"]


def test_a_name_that_is_no_text_is_read(tmp_path):
    put(tmp_path / "a/1.png")
    (tmp_path / os.fsdecode(b"b\xff")).mkdir()
    os.rename(put(tmp_path / "2.png"), tmp_path / os.fsdecode(b"b\xff/2.png"))
    source = read(tmp_path)
    assert source.class_names == ("a", "b\\xff")
    source.fetch([0])


@pytest.mark.parametrize("content", [b"", b"<html>", b"GIF89a", b"BM" + bytes(60), b"\xff\xd8\xff\xe0" + bytes(99)])
def test_file_that_is_not_an_image_raises(tmp_path, content):
    for number in range(2):
        (tmp_path / f"{number}.jpg").write_bytes(content)
    assert "image" in refused(tmp_path)


def test_floating_point_pixels_are_refused(tmp_path):
    for number in range(2):
        Image.fromarray(np.ones((8, 8), np.float32)).save(tmp_path / f"{number}.tiff")
    assert "data.range" in refused(tmp_path)


def test_a_file_that_went_away_is_named(tmp_path):
    put(tmp_path / "a.png"), put(tmp_path / "b.png")
    source = read(tmp_path)
    for path in tmp_path.glob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        source.fetch([0])


@pytest.mark.parametrize(
    ("names", "path", "problem"),
    [
        ((), None, "data.path is required for dataset 'folder'; pass data.path=DIR"),
        ((), "nowhere", "data.path: no folder"),
        (("a.png",), "", "only one image"),
        (("a.png",), "a.png", "is not a folder, .zip or .tar file of images"),
        (("a/1.png", "b/2.png", "3.png"), "", "'3.png' is next to 2 class folders"),
    ],
)
def test_what_is_no_folder_of_images_is_refused(tmp_path, names, path, problem):
    for name in names:
        put(tmp_path / name)
    assert problem in refused("" if path is None else tmp_path / path)


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "gztar"])
def test_the_start_of_a_file_is_read_alone(tmp_path, kind):
    put(tmp_path / "root" / "a.png")
    path = tmp_path / "root" if kind == "folder" else shutil.make_archive(str(tmp_path / "x"), kind, tmp_path / "root")
    files = open_reader(str(path))
    (name,) = map(os.fsdecode, files.find())
    content = (tmp_path / "root" / "a.png").read_bytes()
    assert (files.read(name, 4), files.read(name)) == (content[:4], content)


def test_image_cache_is_bounded_and_correct(tmp_path, monkeypatch):
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 1 << 20)  # room for five
    for number in range(20):
        put(tmp_path / f"{number}.png", size=(256, 256), seed=number)
    source = read(tmp_path, size=256)
    reads = record_reads(monkeypatch)
    rows = np.arange(len(source))
    before = source.fetch(rows)["image"]
    assert len(reads) == len(source)
    after = source.fetch(rows)["image"]
    assert len(reads) == 2 * len(source) - 5
    assert torch.equal(before, after)
    assert before.is_contiguous() and after.is_contiguous()  # kernels go by strides, too


def test_nothing_is_decoded_at_the_start(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(b"no picture")
    assert len(read(tmp_path)) + len(read(tmp_path, "held_out")) == 4


def test_a_fingerprint_follows_the_files_and_the_settings(tmp_path):
    for number in range(4):
        put(tmp_path / f"{number}.png")
    before = read(tmp_path).fingerprint
    assert read(tmp_path, crop="squash").fingerprint != before
    assert read(tmp_path, size=16).fingerprint != before
    put(tmp_path / listing(read(tmp_path))[0], seed=1)
    assert read(tmp_path).fingerprint != before
