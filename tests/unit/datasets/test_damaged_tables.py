"""Parquet and Arrow files whose numbers point anywhere, and pipes among them: one line, no wait, no wild read."""

import os
import struct

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import png

pyarrow = pytest.importorskip("pyarrow")
MARK = 0x1234567


def arrow_file(folder, change):
    """A folder of `datasets` with an Arrow file whose bytes are changed."""
    images = [{"bytes": png(number) * 40, "path": f"path {number}.png"} for number in range(4)]
    table = pyarrow.table({"image": images, "a name": list(range(4))})
    stream = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue().to_pybytes()
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    (folder / "data-0.arrow").write_bytes(change(content))
    return folder


def with_other_offsets(content):
    """The ends of the images, of which the last but one is far outside of the file."""
    size = len(png(0)) * 40
    sizes = [len(png(number)) * 40 for number in range(4)]
    offsets = struct.pack("<5i", 0, size, sum(sizes[:2]), sum(sizes[:3]), sum(sizes))
    assert content.count(offsets) == 1
    return content.replace(offsets, struct.pack("<5i", 0, size, sum(sizes[:2]), 2**31 - 1, sum(sizes)))


def with_text_that_is_no_unicode(content):
    assert b"path 1.png" in content
    return content.replace(b"path 1.png", b"path \xff.png")


def with_a_name_that_is_no_unicode(content):
    assert b"a name" in content
    return content.replace(b"a name", b"a \xffame")


@pytest.mark.parametrize(
    "change", [with_other_offsets, with_text_that_is_no_unicode, with_a_name_that_is_no_unicode, lambda c: c[:900]]
)
def test_a_damaged_arrow_file_is_refused_in_a_line(tmp_path, change):
    def read():
        images = open_encoded_images(str(arrow_file(tmp_path / "data", change)))
        images.read(range(len(images)))

    assert "data-0.arrow: cannot be read" in refusal(read)


def test_an_undamaged_arrow_file_is_read(tmp_path):
    images = open_encoded_images(str(arrow_file(tmp_path / "data", lambda content: content)))
    assert images.read([3]) == [png(3) * 40]


@pytest.mark.parametrize("name", ["data-1.arrow", "data-1.parquet", "train.parquet"])
def test_a_pipe_among_tables_is_not_read(tmp_path, name):
    folder = arrow_file(tmp_path / "data", lambda content: content)
    os.mkfifo(folder / name)
    assert len(open_encoded_images(str(folder))) == 4
