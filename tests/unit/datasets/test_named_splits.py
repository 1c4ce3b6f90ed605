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
