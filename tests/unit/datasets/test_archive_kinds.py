"""Archives are known by their content, whatever their names say, and other files by what to do with them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest

from paragan.core.option_types import Choice
from paragan.datasets import shards
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.data_refusals import refusal
from tests.image_folders import add_member, fill, png


def zipped(numbers):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for number in numbers:
            archive.writestr(f"{number}.png", png(number))
    return stream.getvalue()


def tarred(path, mode, numbers, last=()):
    with tarfile.open(path, mode) as archive:
        for number in numbers:
            add_member(archive, f"{number}.png", png(number))
        for name, content in last:
            add_member(archive, name, content)
    return path


def names_in(path):
    images = open_encoded_images(str(path))
    return [images.name(row) for row in range(len(images))]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("name", ["x.zip", "x.ZIP", "x", "x.tar"])
def test_a_tar_file_of_any_name_is_read(tmp_path, mode, name):
    assert names_in(tarred(tmp_path / name, mode, range(3))) == ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize("name", ["x.tar", "x.tgz", "x", "x.tar.gz"])
def test_a_zip_file_of_any_name_is_read(tmp_path, name):
    (tmp_path / name).write_bytes(zipped(range(3)))
    assert names_in(tmp_path / name) == ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize("name", ["x.tar", "x"])
@pytest.mark.parametrize("after", [(), (("read.me", b"x" * 900),)])
def test_a_tar_file_with_a_zip_file_at_its_end_is_read_as_a_tar_file(tmp_path, name, after):
    path = tarred(tmp_path / name, "w", range(3), [("more.zip", zipped(range(7, 9))), *after])
    assert names_in(path) == ["0.png", "1.png", "2.png"]


def test_files_of_arrays_say_how_arrays_are_read(tmp_path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.zeros((8, 8, 3), np.uint8))
    assert "data.name=npz" in refusal(lambda: open_encoded_images(str(tmp_path)))


@pytest.mark.parametrize("name", ["x.zip", ""])
def test_a_check_of_shards_that_are_none_is_refused_as_training_is(tmp_path, name):
    fill(tmp_path, ". 3")
    (tmp_path / "x.zip").write_bytes(zipped(range(3)))
    options = shards.Options(path=str(tmp_path / name))
    assert "data prepare" in refusal(lambda: check_dataset(options.path, data=Choice("shards", options)))
    refusal(lambda: shards.source(options, "train"))


PACKED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("padding", [0, 8])
@pytest.mark.parametrize("kind", PACKED)
def test_archives_of_several_compressed_streams_are_read_to_the_end(tmp_path, kind, padding):
    """As `cat a.tar.xz b.tar.xz` and parallel compressors write them; zeros may stand between streams."""
    data = tarred(tmp_path / "plain.tar", "w", range(5)).read_bytes()
    third = len(data) // 3
    parts = (data[:third], data[third : 2 * third], data[2 * third :])
    path = tmp_path / f"images.tar.{kind}"
    path.write_bytes((b"\0" * padding if kind == "xz" else b"").join(map(PACKED[kind], parts)))
    assert names_in(path) == names_in(tmp_path / "plain.tar")


def test_an_archive_whose_second_stream_is_cut_is_damaged(tmp_path):
    data = tarred(tmp_path / "plain.tar", "w", range(5)).read_bytes()
    path = tmp_path / "images.tar.xz"
    path.write_bytes(lzma.compress(data[: len(data) // 2]) + lzma.compress(data[len(data) // 2 :])[:-20])
    assert "damaged archive" in refusal(lambda: names_in(path))


INNER = {"inside the tars": {"0.tar": ["cat/1.png", "dog/2.png"], "1.tar": ["cat/3.png", "dog/4.png"]}}
INNER["one class in each tar"] = {"0.tar": ["cat/1.png", "cat/2.png"], "1.tar": ["dog/1.png"]}
INNER["splits"] = {"train-0.tar": ["cat/1.png", "dog/2.png"], "val-0.tar": ["cat/3.png", "dog/4.png"]}


@pytest.mark.parametrize("tars", INNER.values(), ids=INNER)
def test_folders_in_several_tars_are_classes_where_that_is_set_and_else_said(tmp_path, tars):
    for tar, members in tars.items():
        with tarfile.open(tmp_path / tar, "w") as archive:
            for member in members:
                add_member(archive, member, png())
    images = open_encoded_images(str(tmp_path), classes="folders")
    names = [member.partition("/")[0] for members in tars.values() for member in members]
    assert [images.class_names[label] for label in images.labels] == names
    images = open_encoded_images(str(tmp_path))
    assert images.labels is None and any("data.classes=folders" in line and "'cat'" in line for line in images.notices)
    images = open_encoded_images(str(tmp_path), classes="none")
    assert images.labels is None and not any("classes" in line for line in images.notices)
