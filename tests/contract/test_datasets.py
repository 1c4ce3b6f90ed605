"""What every data set keeps: uint8 images fetched by row, the same in any company, in two parts."""

from __future__ import annotations

import ast

import numpy as np
import pytest
import torch

from paragan.core import shelf

SETTINGS = {"mnist": lambda root: {"path": str(root / "mnist")}}  # for those that need something to read


@pytest.fixture(params=shelf.names("datasets"))
def parts(request):
    name = request.param
    given = SETTINGS[name](request.getfixturevalue("data_root")) if name in SETTINGS else {}
    options = shelf.options("datasets", name)(**given)
    return {split: shelf.load("datasets", name).source(options, split) for split in ("train", "held_out")}


def test_images_and_labels(parts):
    for source in parts.values():
        x, y = source.fetch(np.array([0, len(source) - 1, 3]))
        assert x.dtype == torch.uint8
        assert tuple(x.shape) == (3, *source.shape)
        if source.class_names:
            assert y.dtype == torch.int64
            assert tuple(y.shape) == (3,)
            assert all(0 <= label < len(source.class_names) for label in y.tolist())
        else:
            assert y is None


def test_a_row_is_the_same_in_any_company(parts):
    for source in parts.values():
        rows = np.array([5, 0, 5, len(source) - 1])
        together, _ = source.fetch(rows)
        alone = torch.cat([source.fetch(rows[i : i + 1])[0] for i in range(4)])
        assert torch.equal(together, alone)


def test_rows_are_copies(parts):
    before, _ = parts["train"].fetch(np.array([0]))
    parts["train"].fetch(np.array([0]))[0].zero_()
    assert torch.equal(parts["train"].fetch(np.array([0]))[0], before)


def test_the_parts_agree_and_share_no_image(parts):
    train, held_out = parts["train"], parts["held_out"]
    assert (train.shape, train.class_names) == (held_out.shape, held_out.class_names)
    seen = {image.numpy().tobytes() for image in train.fetch(np.arange(min(5000, len(train))))[0]}
    unseen = {image.numpy().tobytes() for image in held_out.fetch(np.arange(min(1000, len(held_out))))[0]}
    assert not seen & unseen


@pytest.mark.parametrize("row", [-1, 10**9])
def test_rows_that_are_not_there_are_refused(parts, row):
    with pytest.raises((IndexError, RuntimeError)):
        parts["train"].fetch(np.array([row]))


@pytest.mark.parametrize("name", shelf.names("datasets"))
def test_a_file_says_where_its_images_come_from(name):
    tree = ast.parse(shelf.locate("datasets", name).read_text(encoding="utf-8"))
    assert "Source:" in ast.get_docstring(tree)
