"""A column of splits in a table of labels, and tables in encodings of old: read as their authors mean them."""

from __future__ import annotations

import json
import os

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import fill

WORDS = ("Train", "train", "TRAINING", "val", "Validation", "test")
SPLITS = {"train": (0, 1, 2), "held_out": (3, 4)}


def read(tmp_path, text, name="labels.csv", root="data"):
    table = fill(tmp_path / root, ". 6").parent / name
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_encoded_images(str(tmp_path / root), labels=str(table))


def csv_text(words, head="file_name,label,split", labels="ab"):
    return "\n".join([head, *(f"0_{n}.png,{labels[n % len(labels)]},{word}" for n, word in enumerate(words))])


def files_of(images, split):
    return [images.name(row) for row in images.rows(split, 0.1)]


@pytest.mark.parametrize("head", ["file_name,label,split", "File Name,Class Name,Data Split", "id,class,Subset"])
def test_rows_of_a_table_are_in_the_splits_that_it_names(tmp_path, head):
    images = read(tmp_path, csv_text(WORDS, head))
    assert {split: files_of(images, split) for split in SPLITS} == {
        split: [f"0_{n}.png" for n in rows] for split, rows in SPLITS.items()
    }
    assert images.ignored["images of other splits"] == 1 and not images.notices
    assert images.labels.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_a_table_next_to_images_names_their_splits(tmp_path, name):
    rows = [{"file_name": f"0_{n}.png", "label": "ab"[n % 2], "split": word} for n, word in enumerate(WORDS)]
    text = csv_text(WORDS) if name.endswith("csv") else "\n".join(map(json.dumps, rows))
    (fill(tmp_path, ". 6") / name).write_text(text)
    assert files_of(open_encoded_images(str(tmp_path)), "held_out") == ["0_3.png", "0_4.png"]


def test_a_test_split_is_held_out_without_another_and_left_out_without_labels(tmp_path):
    words = ["train"] * 4 + ["test"] * 2
    assert files_of(read(tmp_path, csv_text(words)), "held_out") == ["0_4.png", "0_5.png"]
    unlabelled = csv_text(words).replace("a,test", ",test").replace("b,test", ",test")
    images = read(tmp_path, unlabelled)
    assert (len(images), images.num_train, images.ignored["images without a label"]) == (4, None, 2)


def test_a_column_of_other_values_is_not_read_and_one_split_is_none(tmp_path):
    images = read(tmp_path, csv_text("xyzxyz"))
    assert images.num_train is None and "split" in images.notices[0]
    images = read(tmp_path, csv_text(["train"] * 6))
    assert images.num_train is None and len(images) == 6 and not images.notices


@pytest.mark.parametrize(
    ("words", "word"),
    [(["train", "val", "extra"] * 2, "'extra'"), (["train", "val", ""] * 2, "no split"), (["test"] * 6, "'test'")],
)
def test_splits_that_are_none_are_refused_by_name(tmp_path, words, word):
    message = refusal(lambda: read(tmp_path, csv_text(words)))
    assert word in message and "labels.csv" in message and ".png" in message


@pytest.mark.parametrize(("label", "encoding"), [("Käse", "latin-1"), ("Šumava", "cp1252"), ("50 €", "cp1252")])
@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl", "labels.json"])
def test_a_table_of_windows_is_read_and_said(tmp_path, label, encoding, name):
    pairs = [(f"0_{n}.png", (label, "b")[n % 2]) for n in range(6)]
    rows = [{"file_name": file, "label": text} for file, text in pairs]
    texts = {
        ".csv": "file_name,label\n" + "".join(f"{file},{text}\n" for file, text in pairs),
        ".jsonl": "\n".join(json.dumps(row, ensure_ascii=False) for row in rows),
        ".json": json.dumps(rows, ensure_ascii=False),
    }
    images = read(tmp_path, texts[os.path.splitext(name)[1]].encode(encoding), name)
    assert set(images.class_names) == {label, "b"}
    assert "UTF-8" in images.notices[0] and name in images.notices[0]


DISK_NAMES = ["dög".encode(), "dög".encode("latin-1"), "do\u0308g".encode()]  # the last by macOS


@pytest.mark.parametrize("on_disk", DISK_NAMES)
@pytest.mark.parametrize("in_table", DISK_NAMES)
def test_names_of_files_are_compared_whatever_their_encoding(tmp_path, on_disk, in_table):
    root = fill(tmp_path / "data", ". 2")
    os.rename(root / "0_0.png", os.path.join(os.fsencode(root), on_disk + b".png"))
    (tmp_path / "l.csv").write_bytes(b"file,label\n%s,a\n0_1,b\n" % in_table)
    images = open_encoded_images(str(root), labels=str(tmp_path / "l.csv"))
    assert sorted(images.labels.tolist()) == [0, 1]


@pytest.mark.parametrize("row", [["\ud800.png", "a"], ["0_0.png", "\ud800"]])
def test_halves_of_characters_are_one_line(tmp_path, row):
    text = json.dumps([row, *([f"0_{n}.png", "a"] for n in range(1, 6)), ["0_0.png", "a"]][: 6 + (row[1] == "a")])
    assert "l.json" in refusal(lambda: read(tmp_path, text, "l.json"))


@pytest.mark.parametrize("labels", [("1,0", "0,0"), ("2;3", "1"), ("0|1", "1|0")])
def test_several_numbers_of_an_image_are_refused(tmp_path, labels):
    rows = "".join(f'0_{n}.png\t"{labels[n % 2]}"\n' for n in range(6))
    assert "pg.Trainer" in refusal(lambda: read(tmp_path, "file\tlabel\n" + rows))
