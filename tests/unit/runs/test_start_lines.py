"""What the start of a run says of its data: the classes by name, so that folders that are none are noticed."""

from __future__ import annotations

import pytest

from paragan.datasets import folder
from paragan.runs import run_lines
from tests.image_folders import fill


@pytest.mark.parametrize(
    ("folders", "text"),
    [
        (["cats/ 2", "dogs/ 2"], " of 2 classes (cats, dogs), 8x8"),
        ([f"c{number}/ 2" for number in range(6)], " of 6 classes (c0, c1, c2, c3, …), 8x8"),
        (["x" * 99 + "/ 2", "y/ 2"], f" of 2 classes ({'x' * 20}, y), 8x8"),
        ([". 4"], " images, 8x8"),
        ([". 2"], "1 colour image, 8x8"),
    ],
)
def test_the_line_of_data_names_classes(tmp_path, folders, text):
    source = folder.source(folder.Options(path=str(fill(tmp_path, *folders)), size=8), "train")
    assert run_lines._data_text(source).endswith(text)
