"""Names that no file system takes, in tables of labels and in archives: neither memory nor minutes."""

import json
import tarfile
import tracemalloc
import zipfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import add_member, fill, png

MIB = 1 << 20
LONG = ["a/" * 30_000 + "0.png", "a." * 30_000 + "png", "aB" * 30_000 + "0.png"]


def table_of(folder, rows, suffix):
    path = folder / f"labels{suffix}"
    if suffix == ".jsonl":
        path.write_text("".join(json.dumps({"file_name": name, "label": label}) + "\n" for name, label in rows))
    else:
        path.write_text("file_name,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("name", [*LONG, "/" * 60_000])
def test_a_row_with_a_long_name_takes_little_memory(tmp_path, name, suffix):
    fill(tmp_path / "data", ". 3")
    rows = [("0_0.png", "cat"), ("0_1.png", "dog"), ("0_2.png", "dog"), (name, "cat")]
    table = table_of(tmp_path, rows, suffix)
    tracemalloc.start()
    try:
        images = open_encoded_images(str(tmp_path / "data"), labels=str(table))
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    assert images.class_sizes() == [1, 2]
    assert "1 of 4 rows name no image" in images.notices[0]


def test_a_row_with_more_folders_names_the_image_with_its_suffix_first(tmp_path):
    fill(tmp_path / "data", "1.png 1", "2.png 1", "3.png 1")
    names = ["x/1.jpg", "x/1.png", "y/2", "z/z/3.png"]
    table = table_of(tmp_path, zip(names, ["dog", "cat", "cat", "dog"], strict=True), ".csv")
    images = open_encoded_images(str(tmp_path / "data"), labels=str(table))
    assert [images.class_names[label] for label in images.labels] == ["cat", "cat", "dog"]


@pytest.mark.parametrize("ending", ["zip", "tar", "tgz"])
@pytest.mark.parametrize("name", LONG)
def test_an_archive_with_a_long_name_is_refused_by_it(tmp_path, name, ending):
    path = archive(tmp_path / f"x.{ending}", [name, "1.png", "2.png"])
    message = refusal(lambda: open_encoded_images(str(path)))
    assert f"{len(name):,} characters" in message
    assert str(path) in message and len(message) < 500


@pytest.mark.parametrize("ending", ["zip", "tar", "tgz"])
def test_an_archive_with_the_longest_names_is_read(tmp_path, ending):
    names = [f"{'a/' * 2045}{number}.png" for number in range(3)]
    images = open_encoded_images(str(archive(tmp_path / f"x.{ending}", names)))
    assert [images.name(row) for row in range(3)] == names


def archive(path, names):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as packed:
            for number, name in enumerate(names):
                packed.writestr(name, png(number))
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as packed:
        for number, name in enumerate(names):
            add_member(packed, name, png(number))
    return path
