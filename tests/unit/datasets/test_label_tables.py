"""Tables of labels as programs write them: other encodings, delimiters and forms, and what is none of them."""

from __future__ import annotations

import gzip
import json
import tarfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import add_member, fill, png

ROWS = [("0_0.png", "cat"), ("0_1.png", "dög"), ("0_2.png", "cat")]
CSV = "file_name,label\n" + "".join(f"{file},{label}\n" for file, label in ROWS)
OBJECTS = [{"file_name": file, "label": label} for file, label in ROWS]
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in OBJECTS)


def names_of_rows(tmp_path, name, content):
    table = fill(tmp_path / "data", ". 3").parent / name
    table.write_bytes(content)
    images = open_encoded_images(str(tmp_path / "data"), labels=str(table))
    assert not images.notices
    return [(images.name(row), images.class_names[images.labels[row]]) for row in range(3)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(("name", "text"), [("l.csv", CSV), ("l.jsonl", JSONL), ("l.json", json.dumps(OBJECTS))])
def test_a_table_of_any_unicode_encoding_is_read(tmp_path, encoding, name, text):
    assert names_of_rows(tmp_path, name, text.encode(encoding)) == ROWS


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "dataset.json"])
def test_a_utf_16_table_next_to_images_gives_their_classes(tmp_path, name):
    texts = {"metadata.csv": CSV, "metadata.jsonl": JSONL, "dataset.json": json.dumps({"labels": ROWS})}
    (fill(tmp_path, ". 3") / name).write_bytes(texts[name].encode("utf-16"))
    assert open_encoded_images(str(tmp_path)).class_names == ("cat", "dög")


@pytest.mark.parametrize("before", ["\n\r\n", "sep=;\r\n", "# made by hand\n\n# twice\n"])
@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_a_header_after_other_lines_is_found(tmp_path, before, delimiter):
    text = before + CSV.replace(",", delimiter)
    assert names_of_rows(tmp_path, "l.csv", text.encode()) == ROWS


@pytest.mark.parametrize("content", [ROWS, dict(ROWS), {"labels": ROWS}])
def test_pairs_of_file_and_label_in_json_are_read(tmp_path, content):
    assert names_of_rows(tmp_path, "l.json", json.dumps(content).encode()) == ROWS


def test_other_content_of_a_dataset_json_next_to_images_is_no_table(tmp_path):
    (fill(tmp_path, ". 3") / "dataset.json").write_text(json.dumps({"name": "cats", "license": "x"}))
    assert open_encoded_images(str(tmp_path)).class_names == ()


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("l.csv", b"", "file_name"),
        ("l.csv", b"file_name,label\n", "file_name"),
        ("l.json", b"{}", "file_name"),
        ("l.jsonl", b"{}\n", "file_name"),
        ("l.json", b"3", "labels cannot be read"),
        ("l.csv.gz", gzip.compress(CSV.encode(), mtime=0), "not text"),
        ("l.xlsx", b"PK\x03\x04\x14\x00\x06\x00" * 9, "not text"),
        ("l.csv", b"file_name,label,Label\n0_0.png,a,b\n", "two columns"),
        ("l.csv", b"id,id,label\n0_0.png,0_1.png,b\n", "two columns"),
        ("l.csv", b"file_name,label\n0_0.png,1%s\n0_1.png,0\n0_2.png,0\n" % (b"0" * 30), "labels cannot be read"),
        ("l.csv", b"file_name,label\n0_0.png,1%s\n0_1.png,0\n0_2.png,0\n" % (b"0" * 5000), "labels cannot be read"),
        ("l.json", b'[["0_0.png", 0], ["0_1.png", 1e30], ["0_2.png", 0]]', "1e+30"),
    ],
)
def test_a_table_without_labels_is_refused_by_name(tmp_path, name, content, word):
    message = refusal(lambda: names_of_rows(tmp_path, name, content))
    assert name in message and word in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("labels", [("cat", "dög\n", "cat"), ("1", "7 ", "1")])
def test_a_web_dataset_has_classes_of_text_or_numbers(tmp_path, encoding, labels):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for row, label in enumerate(labels):
            add_member(archive, f"{row}.png", png(row))
            add_member(archive, f"{row}.cls", label.encode(encoding))
    images = open_encoded_images(str(tmp_path / "x.tar"))
    assert [images.class_names[label] for label in images.labels] == [label.strip() for label in labels]
