"""Rows of Parquet and Arrow files in any order: each row group of small files is read once."""

import numpy as np
import pytest

from paragan.datasets.base import table_images
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.data_refusals import refusal
from tests.image_folders import png

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
NUM = 11
ROWS = np.random.default_rng(0).permutation(NUM).tolist()


@pytest.fixture(params=["bytes", "struct of datasets", "two files"])
def table_path(request, tmp_path):
    """Parquet of row groups of 3 rows."""
    images = [png(number) for number in range(NUM)]
    column = [{"bytes": image, "path": None} for image in images] if "struct" in request.param else images
    parts = [column[:5], column[5:]] if request.param == "two files" else [column]
    for number, part in enumerate(parts):
        parquet.write_table(pyarrow.table({"image": part}), tmp_path / f"{number}.parquet", row_group_size=3)
    return tmp_path


def count_groups(monkeypatch):
    """A list that receives the number of every row group that is read whole."""
    groups = []
    read = table_images._read_group
    monkeypatch.setattr(
        table_images, "_read_group", lambda path, column, group: groups.append(group) or read(path, column, group)
    )
    return groups


def test_rows_in_any_order_read_each_row_group_once(table_path, monkeypatch):
    groups = count_groups(monkeypatch)
    images = open_encoded_images(str(table_path))
    for rows in (ROWS, ROWS[::-1], [ROWS[0]]):
        assert images.read(rows) == [png(row) for row in rows]
    assert len(groups) == 4  # of 11 rows, or of 5 and 6


def test_row_groups_beyond_the_limit_are_not_kept(table_path, monkeypatch):
    groups = count_groups(monkeypatch)
    monkeypatch.setattr(table_images, "_MAX_HELD_BYTES", 100)
    images = open_encoded_images(str(table_path))
    assert images.read(ROWS) == [png(row) for row in ROWS] and groups == []
    assert list(images.scan(range(2, 9))) == [png(row) for row in range(2, 9)]


def test_a_row_group_that_is_damaged_after_the_start_is_one_line(table_path):
    images = open_encoded_images(str(table_path))
    path = sorted(table_path.glob("*.parquet"))[0]
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)  # the first pages; the footer is as it was
    path.write_bytes(content)
    assert f"{path}: " in refusal(lambda: images.read(range(NUM)))


def test_arrow_files_are_mapped_once(tmp_path, monkeypatch):
    (tmp_path / "state.json").write_text("{}")
    table = pyarrow.table({"image": [png(number) for number in range(NUM)]})
    with (
        pyarrow.OSFile(str(tmp_path / "data-0.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=2)
    images = open_encoded_images(str(tmp_path))
    monkeypatch.setattr(table_images, "_map_arrow", None)
    assert images.read(ROWS) == [png(row) for row in ROWS]


def test_the_check_of_a_table_reads_the_same_images(table_path):
    report = check_dataset(str(table_path))
    assert report.images == NUM and report.damaged == [] and report.splits["train"] + report.splits["held_out"] == NUM
