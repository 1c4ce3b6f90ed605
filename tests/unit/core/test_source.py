"""The two halves of `fetch`: what waits for storage, and what uses the CPU."""

import numpy as np
import pytest
import torch

from paragan.build.data import UnlabelledSource
from paragan.datasets import _image_source, digits, folder, paired, shards
from paragan.loading.subset import SubsetSource
from tests.prepared_shards import image_folder, prepared

ROWS = np.array([3, 0, 7, 3])
PLACES = np.array([10, 11, 12, 13])


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    image_folder(folder / "images")
    image_folder(folder / "paired", side=5)  # twice as wide as high
    prepared(folder / "images", folder / "shards")
    return folder


def opened(name, root):
    if name == "digits":
        return digits.source(digits.Options(), "train")
    module = {"folder": folder, "shards": shards, "paired": paired}[name]
    path = root / (name if name in ("shards", "paired") else "images")
    return module.source(module.Options(path=str(path), size=8), "train")


@pytest.mark.parametrize("name", ["folder", "shards", "paired", "digits"])
@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: SubsetSource(s, np.arange(8)[::-1]), UnlabelledSource])
def test_source_decodes_what_it_has_read(name, wrap, root):
    source = wrap(opened(name, root))
    fetched = source.fetch(ROWS, PLACES, 5)
    encoded = source.read(ROWS)
    decoded = source.decode(encoded, ROWS, PLACES, 5)
    assert fetched.keys() == decoded.keys()
    assert all(torch.equal(fetched[key], decoded[key]) for key in fetched)
    assert all(len(data) > 0 for data in encoded) == source.is_decoded


def test_cached_rows_are_not_read_again(root, monkeypatch):
    monkeypatch.setattr(_image_source, "CACHE_BYTES", 1 << 20)
    source = opened("shards", root)
    fetched = source.fetch(ROWS)
    assert source.read(ROWS) == [b""] * 4
    assert torch.equal(source.fetch(ROWS)["image"], fetched["image"])
