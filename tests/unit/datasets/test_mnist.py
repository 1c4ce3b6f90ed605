"""MNIST files: what is whole is read, what is not is refused in one line that names the file."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from paragan.datasets import fashion_mnist, mnist
from tests.data_refusals import refusal

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 28, 28), np.uint8)
CLASSES = np.array([3, 0, 9, 1, 4], np.uint8)


def idx(array, kind=0x08, shape=None):
    """An idx file, by hand."""
    shape = array.shape if shape is None else shape
    return bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / f"{IMAGES}.gz").write_bytes(gzip.compress(idx(PIXELS)))
    (tmp_path / LABELS).write_bytes(idx(CLASSES))
    return tmp_path


def read(folder, size=28):
    return mnist.source(mnist.Options(str(folder), size), "train")


def refused(folder):
    return refusal(lambda: read(folder))


def test_gzipped_and_plain_files_are_read(folder):
    source = read(folder)
    x, y = source.fetch([4, 0]).values()
    assert source.shape == (1, 28, 28)
    assert torch.equal(x[:, 0], torch.from_numpy(PIXELS[[4, 0]]))
    assert y.tolist() == [4, 3]


def test_classes_of_fashion_mnist_have_their_names(folder):
    source = fashion_mnist.source(fashion_mnist.Options(str(folder)), "train")
    _, y = source.fetch([2, 1]).values()
    assert [source.class_names[label] for label in y] == ["Ankle boot", "T-shirt/top"]


def test_32_pixels_are_28_in_a_black_frame(folder):
    x = read(folder, 32).fetch(np.arange(5))["image"]
    assert torch.equal(x[:, 0, 2:-2, 2:-2], torch.from_numpy(PIXELS))
    assert x.sum() == PIXELS.sum()


@pytest.mark.parametrize("path", ["", "no-such-folder"])
def test_a_missing_folder_says_how_to_name_it(path):
    assert "data.path=DIR" in refused(path)


def test_a_missing_file_is_named(folder):
    (folder / LABELS).unlink()
    assert LABELS in refused(folder)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "(missing)"),
        (b"<html>not found</html>", "3c68746d"),
        (idx(PIXELS, kind=0x0D), "00000d03"),
        (idx(PIXELS.reshape(5, -1)), "00000802"),
        (idx(PIXELS)[:10], "header has 10 bytes"),
        (idx(PIXELS)[:-1], "only 3,919 bytes"),
        (idx(PIXELS) + b"x", "more bytes"),
        (idx(PIXELS, shape=(4_000_000_000, 28, 28)), "declares 3,136,000,000,000 bytes"),
        (idx(PIXELS[:0]), "declares 0 bytes"),
        (idx(PIXELS[:, :27]), "27x28"),
        (idx(PIXELS[:4]), "5 labels"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_other_content_is_refused(folder, content, found, pack):
    (folder / f"{IMAGES}.gz").write_bytes(pack(content))
    assert found in refused(folder)


def test_an_unknown_label_is_refused(folder):
    (folder / LABELS).write_bytes(idx(CLASSES + 1))
    assert "invalid label 10" in refused(folder)


@pytest.mark.parametrize("cut", [2, 6, 12, 100, -1, -5])
def test_a_cut_gzip_file_is_refused(folder, cut):
    path = folder / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:cut])
    assert f"{path}: the gzip stream is truncated" in refused(folder)


@pytest.mark.parametrize("place", [2, 500, -6])
def test_a_damaged_gzip_file_is_refused(folder, place):
    path = folder / f"{IMAGES}.gz"
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 0xFF
    path.write_bytes(damaged)
    assert "gzip stream is damaged" in refused(folder)


def test_a_gzip_bomb_unpacks_no_more_than_it_declares(folder):
    bomb = gzip.compress(idx(PIXELS) + bytes(64 << 20))
    (folder / f"{IMAGES}.gz").write_bytes(bomb)
    tracemalloc.start()
    try:
        assert "more bytes" in refused(folder)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("held_out", 10_000)])
def test_the_real_files(data_root, split, count):
    source = mnist.source(mnist.Options(str(data_root / "mnist")), split)
    assert len(source) == count
    if split == "train":
        counts = torch.bincount(source.fetch(np.arange(count))["label"])
        assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
