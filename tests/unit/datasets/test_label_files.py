"""Labels in files next to images and in tables of a user; archives of samples with labels."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan.core.errors import DataError
from paragan.datasets import _class_numbers, folder
from paragan.datasets.base import label_files
from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import record_reads, refusal
from tests.image_folders import add_member, fill, png
from tests.prepared_shards import prepared
from tests.unit.datasets.test_shards import assert_equal


def table(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def labels_of(images):
    return {images.name(row): images.class_names[images.labels[row]] for row in range(len(images))}


def test_labels_of_stylegan(tmp_path):
    fill(tmp_path, "00000/ 3", "00001/ 3")
    names = [f"00000/0_{row}.png" for row in range(3)] + [f"00001/1_{row}.png" for row in range(3)]
    table(tmp_path / "dataset.json", json.dumps({"labels": [[name, n % 2] for n, name in enumerate(names)]}))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in (*names, "dataset.json"):
            archive.write(tmp_path / name, name)
    for path in (tmp_path, tmp_path / "x.zip"):
        images = open_encoded_images(str(path))
        assert labels_of(images) == {name: str(n % 2) for n, name in enumerate(names)}
        assert set(images.ignored) <= {".zip"}  # the file of labels is read
    table(tmp_path / "dataset.json", json.dumps({"labels": None}))
    assert open_encoded_images(str(tmp_path)).class_names == ()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metadata.jsonl", '{"file_name": "0_0.png", "label": "cat"}\n\n{"file_name": "./0_1.png", "label": "dog"}\n'),
        ("metadata.csv", "file_name,class\n0_0.png,cat\n0_1.png,dog\n"),
        ("metadata.csv", "\ufefffile_name;Label;x\r\n0_0.png;cat;1\r\n0_1.png;dog;2\r\n"),
    ],
)
@pytest.mark.parametrize("tops", [[""], ["train", "validation"]])
def test_labels_of_metadata(tmp_path, file, content, tops):
    for top in tops:
        fill(tmp_path / top, ". 2")
        table(tmp_path / top / file, content)
    images = open_encoded_images(str(tmp_path))
    assert labels_of(images) == {os.path.join(top, f"0_{n}.png"): ["cat", "dog"][n] for top in tops for n in (0, 1)}


def test_metadata_without_labels_is_said(tmp_path):
    table(fill(tmp_path, ". 2") / "metadata.jsonl", '{"file_name": "0_0.png", "text": "a cat"}\n')
    images = open_encoded_images(str(tmp_path))
    assert images.class_names == () and "file_name, text" in images.notices[0]


@pytest.mark.parametrize("key", ["{}.png", "{}", "sub/{}.png", "./sub/{}.png"])
def test_labels_of_a_table_of_the_user(tmp_path, key):
    fill(tmp_path / "data", "sub/ 4")
    rows = "".join(f"{key.format(f'0_{n}')},{'ab'[n % 2]}\n" for n in range(4))
    table(tmp_path / "l.csv", f"id,label\n{rows}9_9.png,a\n")
    images = open_encoded_images(str(tmp_path / "data"), labels=str(tmp_path / "l.csv"))
    assert labels_of(images) == {f"sub/0_{n}.png": "ab"[n % 2] for n in range(4)}
    assert "1 of 5 rows name no image" in images.notices[0]


@pytest.mark.parametrize(
    ("labels", "word"),
    [
        (["0.5", "1.5", "2.25"], "pg.Trainer"),
        (["1", "2", ""], "label"),
        (["a", "b", "a\n0_0.png,b"], "several labels"),
        (["-1", "0", "1"], "-1"),
    ],
)
def test_what_is_no_class_is_refused(tmp_path, labels, word):
    fill(tmp_path / "data", ". 3")
    table(tmp_path / "l.csv", "file_name,label\n" + "".join(f"0_{n}.png,{label}\n" for n, label in enumerate(labels)))
    assert word in refusal(lambda: open_encoded_images(str(tmp_path / "data"), labels=str(tmp_path / "l.csv")))


@pytest.mark.parametrize("label", [0.25, [1, 2], {"a": 1}, None])
def test_several_labels_and_numbers_in_metadata_name_the_trainer(tmp_path, label):
    fill(tmp_path, ". 2")
    lines = [{"file_name": f"0_{n}.png", "label": label} for n in range(2)]
    table(tmp_path / "metadata.jsonl", "\n".join(map(json.dumps, lines)))
    message = refusal(lambda: open_encoded_images(str(tmp_path)))
    assert "0_0.png" in message and "pg.Trainer" in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dataset.json", b"[" * 100_000),
        ("dataset.json", b"{"),
        ("dataset.json", b'{"labels": [["0_0.png"]]}'),
        ("dataset.json", b'{"labels": [["0_0.png", 1]]}'),
        ("metadata.jsonl", b'{"file_name": "0_0.png", "label": 1}\n[1]\n'),
        ("metadata.jsonl", b"\xff\xfe{"),
        ("metadata.csv", b"file_name,label\n" + b'"' * 200_000),
    ],
)
def test_invalid_label_files_are_one_line(tmp_path, name, content):
    table(fill(tmp_path, ". 2") / name, content)
    assert name in refusal(lambda: open_encoded_images(str(tmp_path)))


def test_label_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("paragan.datasets.base.label_files._MAX_BYTES", 100)
    table(fill(tmp_path, ". 2") / "dataset.json", '{"labels": [' + " " * 100 + "]}")
    assert "limit" in refusal(lambda: open_encoded_images(str(tmp_path)))


def test_a_missing_table_names_the_setting(tmp_path):
    root = str(fill(tmp_path, ". 2"))
    assert "data.labels" in refusal(lambda: open_encoded_images(root, labels="none.csv"))
    table(tmp_path / "x.csv", "a,b\n1,2\n")
    assert "file_name" in refusal(lambda: open_encoded_images(root, labels=str(tmp_path / "x.csv")))


def test_a_fingerprint_follows_the_labels_of_a_table(tmp_path):
    fill(tmp_path / "data", ". 2")
    prints = []
    for text in ("file,label\n0_0,a\n0_1,b\n", "file,label\n0_0,b\n0_1,a\n"):
        table(tmp_path / "l.csv", text)
        images = open_encoded_images(str(tmp_path / "data"), labels=str(tmp_path / "l.csv"))
        prints.append(images.fingerprint(np.arange(2, dtype=np.uint32), ""))
    assert prints[0] != prints[1]


@pytest.mark.parametrize("suffix", ["cls", "json"])
@pytest.mark.parametrize("key", ["{}", "img.{}", "sub/img.v2.{}"])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_web_dataset_labels_of_keys_with_dots(tmp_path, suffix, key, mode):
    with tarfile.open(tmp_path / "x.tar", mode) as archive:
        for row in range(6):
            name = key.format(f"{row:05}")
            add_member(archive, f"{name}.png", png(row))
            add_member(archive, f"{name}.mask.png", png(row))
            label = row % 3
            add_member(
                archive, f"{name}.{suffix}", json.dumps({"label": label} if suffix == "json" else label).encode()
            )
            add_member(archive, f"{name}.txt", b"a caption")
    images = open_encoded_images(str(tmp_path / "x.tar"))
    assert images.labels.tolist() == [0, 1, 2, 0, 1, 2] and images.class_names == ("0", "1", "2")
    assert (
        images.ignored["further images of samples"] == 6
        and images.ignored[".txt"] == 6
        and f".{suffix}" not in images.ignored
    )


def test_a_zip_with_backslashes_has_its_classes(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("cats", "dogs"):
            for row in range(2):
                info = zipfile.ZipInfo("x")
                info.filename = f"mine\\{name}\\{row}{name}.png"
                archive.writestr(info, png(row))
    images = open_encoded_images(str(tmp_path / "x.zip"))
    assert images.class_names == ("cats", "dogs")
    assert all(Image.open(io.BytesIO(data)).size == (4, 4) for data in images.read(range(4)))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compressed_tar_files_are_read_and_damage_is_one_line(tmp_path, suffix):
    plain = tmp_path / "x.tar"
    with tarfile.open(plain, "w") as archive:
        for name in ("a/1.png", "a/2.png", "b/3", "b/notes"):
            add_member(archive, name, b"text" if name == "b/notes" else png())
    pack = (
        pytest.importorskip("zstandard").compress
        if suffix == "zst"
        else __import__({"gz": "gzip", "bz2": "bz2", "xz": "lzma"}[suffix]).compress
    )
    path = tmp_path / f"y.tar.{suffix}"
    path.write_bytes(pack(plain.read_bytes()))
    images = open_encoded_images(str(path))
    assert images.labels.tolist() == [0, 0, 1] and images.read([2]) == [png()]
    assert images.ignored == {"without extension": 1}
    path.write_bytes(path.read_bytes()[:-20])
    assert str(path) in refusal(lambda: open_encoded_images(str(path)))


def test_zstd_without_a_package_names_it(tmp_path, monkeypatch):
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "x.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    assert "pip install zstandard" in refusal(lambda: open_encoded_images(str(tmp_path / "x.tar.zst")))


def test_files_without_labels_are_not_all_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(label_files, "_NUM_TRIED", 5)
    reads = record_reads(monkeypatch)
    fill(tmp_path, ". 20")
    for row in range(20):
        table(tmp_path / f"0_{row}.json", '{"caption": "a cat"}')
    images = open_encoded_images(str(tmp_path))
    assert images.class_names == () and images.ignored == {".json": 20} and len(reads) == 5


@pytest.mark.parametrize("kind", ["folder", "zip", "bztar", "web", "parquet", "shards"])
def test_train_and_prepare_read_the_same(tmp_path, kind):
    source = fill(tmp_path / "data", "a/ 6", "b/ 6")
    paths = sorted(source.rglob("*.png"))
    if kind == "web":
        source = tmp_path / "web.tar"
        with tarfile.open(source, "w") as archive:
            for row, path in enumerate(paths):
                add_member(archive, f"{row}.png", path.read_bytes())
                add_member(archive, f"{row}.cls", b"%d" % (path.parent.name == "b"))
    elif kind == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        import pyarrow

        columns = {"image": [path.read_bytes() for path in paths], "label": [path.parent.name for path in paths]}
        source = tmp_path / "x.parquet"
        parquet.write_table(pyarrow.table(columns), source)
    elif kind == "shards":
        source = Path(prepared(source, tmp_path / "first").address)
    elif kind != "folder":
        source = Path(shutil.make_archive(str(tmp_path / "packed"), kind, source))
    prepared(source, tmp_path / "out")
    for split in ("train", "held_out"):
        in_place, packed = (
            folder.source(folder.Options(path=str(path), size=4), split) for path in (source, tmp_path / "out")
        )
        rows = np.arange(len(in_place))
        assert len(in_place.class_names) == 2 and len(in_place) == len(packed)
        assert_equal(in_place, packed)
        assert (in_place.fetch(rows)["image"] == packed.fetch(rows)["image"]).all()


def test_a_missing_label_of_a_table_names_its_row(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    columns = {"image": [png(), png()], "label": pyarrow.array([1, None])}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    assert "row 1" in refusal(lambda: open_encoded_images(str(tmp_path / "x.parquet")))


def test_a_test_split_without_labels_is_not_read(tmp_path):
    fill(tmp_path / "data", "train/ 10", "test/ 3")
    table(tmp_path / "l.csv", "id,label\n" + "".join(f"0_{n},{'ab'[n % 2]}\n" for n in range(10)))
    images = open_encoded_images(str(tmp_path / "data"), labels=str(tmp_path / "l.csv"))
    assert (len(images), images.num_train, images.ignored) == (10, None, {"images without a label": 3})
    table(tmp_path / "l.csv", "id,label\n" + "".join(f"0_{n},{'ab'[n % 2]}\n" for n in range(9)))
    assert "0_9.png" in refusal(lambda: open_encoded_images(str(tmp_path / "data"), labels=str(tmp_path / "l.csv")))


def test_whole_numbers_with_and_without_a_point_are_classes():
    classes = _class_numbers.number_labels([1, 2.0, 1, 3.0], "labels", str)
    assert classes.labels.tolist() == [0, 1, 0, 2]
    with pytest.raises(DataError, match="neither integers nor text"):
        _class_numbers.number_labels([1, 2.5], "labels", str)
