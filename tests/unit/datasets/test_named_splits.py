"""Tar and Parquet files whose names are those of splits."""

from __future__ import annotations

import tarfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import add_member, png


def write_tar(path, count):
    with tarfile.open(path, "w") as archive:
        for row in range(count):
            add_member(archive, f"{row}.png", png(row))
            add_member(archive, f"{row}.cls", b"%d" % (row % 2))


def write_parquet(path, count, **columns):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    images = [png(row) for row in range(count)]
    parquet.write_table(pyarrow.table({"image": images, **columns}), path)


@pytest.mark.parametrize(("write", "suffix"), [(write_tar, ".tar"), (write_parquet, ".parquet")])
@pytest.mark.parametrize(
    ("train", "held_out", "unread"),
    [
        (("train-000", "train-001"), "val-000", "test-000"),
        (("imagenet1k-train-0000", "imagenet1k-train-0001"), "imagenet1k-validation-00", "extra-0"),
        (("v1.0-train-00", "v1.0-train-01"), "v1.0-testing-00", "v2.0"),
        (("pets_train_0", "pets_train_1"), "pets_dev_0", "pets_eval_0"),
        (("train/x0", "train/x1"), "Testing/x0", "more/x0"),
    ],
)
def test_files_named_after_splits_are_the_splits(tmp_path, write, suffix, train, held_out, unread):
    for name, count in ((train[0], 3), (train[1], 3), (held_out, 2), (unread, 4)):
        path = tmp_path / f"{name}{suffix}"
        path.parent.mkdir(exist_ok=True)
        write(path, count)
    images = open_encoded_images(str(tmp_path))
    assert (images.num_train, len(images)) == (6, 8)
    assert 4 in images.ignored.values()
    assert {images.where(row).split(":")[0] for row in range(6)} == {str(tmp_path / f"{x}{suffix}") for x in train}


@pytest.mark.parametrize("names", [["val-0", "test-0"], ["a-train", "a-val", "b-train", "b-val"], ["x_dev", "x_test"]])
def test_parquet_files_without_a_sure_training_split_are_refused(tmp_path, names):
    for name in names:
        write_parquet(tmp_path / f"{name}.parquet", 2)
    assert "train" in refusal(lambda: open_encoded_images(str(tmp_path)))


@pytest.mark.parametrize("labels", [None, [-1, -1, -1], [None, None, None]])
def test_held_out_rows_without_labels_are_not_read(tmp_path, labels):
    write_parquet(tmp_path / "train-0.parquet", 10, label=[row % 2 for row in range(10)])
    write_parquet(tmp_path / "test-0.parquet", 3, **({} if labels is None else {"label": labels}))
    images = open_encoded_images(str(tmp_path))
    assert (len(images), images.num_train, images.class_sizes()) == (10, None, [5, 5])
    assert images.ignored == {"rows in test-0.parquet": 3}


@pytest.mark.parametrize(
    ("columns", "unread"),
    [
        ({"mask": [b"x"] * 4}, "mask"),
        ({"coarse_label": [0] * 4, "text": ["a"] * 4, "fine_label": [0, 1] * 2}, "coarse_label, text"),
        ({"conditioning_image": [b"x"] * 4, "label": [0, 1] * 2}, "conditioning_image"),
    ],
)
def test_columns_that_are_not_read_are_said(tmp_path, columns, unread):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    parquet.write_table(pyarrow.table(columns | {"image": [png(row) for row in range(4)]}), tmp_path / "x.parquet")
    images = open_encoded_images(str(tmp_path / "x.parquet"))
    assert images.read([2]) == [png(2)] and f": {unread}" in images.notices[-1]


def test_thumbnails_next_to_parquet_files_of_splits_are_not_trained_on(tmp_path):
    for name in ("data/train-0", "data/test-0"):
        (tmp_path / "data").mkdir(exist_ok=True)
        write_parquet(tmp_path / f"{name}.parquet", 5)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png())
    images = open_encoded_images(str(tmp_path))
    assert (len(images), images.num_train, images.ignored) == (10, 5, {"images in other files": 2})


def test_rows_stay_in_their_split_when_files_are_added(tmp_path):
    def held_out():
        images = open_encoded_images(str(tmp_path))
        return {images.where(row) for row in images.rows("held_out", 0.2).tolist()}

    write_parquet(tmp_path / "b.parquet", 60)
    before = held_out()
    write_parquet(tmp_path / "a.parquet", 60)
    assert before and before <= held_out() and any("b.parquet" not in name for name in held_out())


@pytest.mark.parametrize("num_classes", [1, 2])
def test_the_number_of_classes_is_in_words(tmp_path, num_classes):
    write_parquet(tmp_path / "x.parquet", 4, label=[row % num_classes for row in range(4)])
    assert ("1 class:" if num_classes == 1 else "2 classes:") in open_encoded_images(str(tmp_path)).describe()
