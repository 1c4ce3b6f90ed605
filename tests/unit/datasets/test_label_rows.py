"""Which image a row of a table labels, and what of a table is not read."""

from __future__ import annotations

import json
import tarfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import add_member, fill, png
from tests.prepared_shards import prepared


def read(root, rows, head="file_name,label"):
    table = root.parent / "labels.csv"
    table.write_text("\n".join((head, *rows)) + "\n")
    return open_encoded_images(str(root), labels=str(table))


def labels_of(images):
    return {images.name(row): images.class_names[images.labels[row]] for row in range(len(images))}


@pytest.mark.parametrize(
    ("files", "rows", "labels"),
    [
        (["a/1.png", "b/1.png"], ["a/1.png,x", "b/1.png,y"], {"a/1.png": "x", "b/1.png": "y"}),
        (["1.png", "2.png"], ["set/1.png,x", "./set/2,y"], {"1.png": "x", "2.png": "y"}),
        (["a/b/1.png", "a/c/1.png"], ["b/1,x", "c/1,y "], {"a/b/1.png": "x", "a/c/1.png": "y"}),
        (["a/1.png", "2.png"], ["1.png,x ", "2.png, x"], {"a/1.png": "x", "2.png": "x"}),
    ],
)
def test_a_row_labels_the_image_that_it_names(tmp_path, files, rows, labels):
    images = read(fill(tmp_path / "data", *(f"{file} 1" for file in files)), rows)
    assert labels_of(images) == labels and not images.notices


@pytest.mark.parametrize(
    ("files", "rows", "word"),
    [
        (["a/1.png", "b/1.png"], ["a/1.png,x"], "b/1.png"),
        (["a/1.png", "b/1.png", "2.png"], ["1.png,x", "2.png,y"], "'a/1.png' and 'b/1.png'"),
        (["train/1.png", "test/1.png"], ["1,x"], "'test/1.png' and 'train/1.png'"),
        (["1.png", "a/1.png"], ["a/1.png,x"], "/1.png"),
        (["a/1.png", "b/2.png"], ["3.png,x", "4.png,y"], "a/1.png"),
        (["1.png", "2.png", "3.png"], ["1,cat", "2,dog", '3,"cat,dog"'], "pg.Trainer"),
        (["1.png", "2.png", "3.png"], ["1,cat", "2,dog", "3,dog | cat"], "pg.Trainer"),
    ],
)
def test_other_images_and_several_labels_are_refused(tmp_path, files, rows, word):
    root = fill(tmp_path / "data", *(f"{file} 1" for file in files))
    assert word in refusal(lambda: read(root, rows))


@pytest.mark.parametrize("head", ["file_name,label,split,age", "split,age,image,class", "Split,id,age,LABEL"])
def test_columns_that_are_not_read_are_said(tmp_path, head):
    values = {"file_name": "{}", "image": "{}", "id": "{}", "label": "x", "class": "x", "LABEL": "x"}
    row = ",".join(values.get(name, "z") for name in head.split(","))
    images = read(fill(tmp_path / "data", ". 2"), [row.format(f"0_{n}.png") for n in range(2)], head)
    (notice,) = images.notices
    assert "split" in notice.lower() and "age" in notice and "image" not in notice


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("dataset.json", json.dumps({"labels": {"0_0.png": float("nan"), "0_1.png": 1}})),
        ("dataset.json", '{"labels": [1, 2]}'),
        ("dataset.json", '{"labels": 3}'),
        ("metadata.jsonl", '{"file_name": "0_0.png", "label": NaN}\n{"file_name": "0_1.png", "label": 1}\n'),
    ],
)
def test_labels_that_are_none_are_one_line(tmp_path, file, content):
    (fill(tmp_path, ". 2") / file).write_text(content)
    assert file in refusal(lambda: open_encoded_images(str(tmp_path)))


@pytest.mark.parametrize("kind", ["shards", "parquet", "folder of parquet"])
@pytest.mark.parametrize("setting", [{"labels": "x.csv"}, {"classes": "none"}])
def test_settings_of_folders_are_refused_for_data_with_labels_of_its_own(tmp_path, kind, setting):
    if kind == "shards":
        path = prepared(fill(tmp_path / "data", "a/ 2", "b/ 2"), tmp_path / "out").address
    else:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        import pyarrow

        parquet.write_table(pyarrow.table({"image": [png(), png()], "label": [0, 1]}), tmp_path / "x.parquet")
        path = tmp_path / "x.parquet" if kind == "parquet" else tmp_path
    assert "data.labels=false" in refusal(lambda: open_encoded_images(str(path), **setting))


@pytest.mark.parametrize("words", [("input", "output"), ("a", "b", "c"), ("seg",)])
def test_samples_of_several_named_images_are_refused(tmp_path, words):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for row in range(3):
            for word in words:
                add_member(archive, f"{row}.{word}.png", png(row))
            add_member(archive, f"{row}.cls", b"1")
    assert f"0.{words[0]}.png" in refusal(lambda: open_encoded_images(str(tmp_path / "x.tar")))


def test_a_portable_fingerprint_follows_the_labels(tmp_path):
    root = fill(tmp_path / "data", ". 4")
    rows = [[f"0_{n},{'ab'[n in others]}" for n in range(4)] for others in ({1, 2}, {1, 3}, {1, 2})]
    first, second, again = (read(root, lines).portable_fingerprint() for lines in rows)
    assert first == again != second
