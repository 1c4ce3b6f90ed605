"""Fashion-MNIST: MNIST's files, and names of its own."""

import struct

import numpy as np
import pytest

from paragan.core.errors import DataError
from paragan.datasets import fashion_mnist


def test_files_are_read_and_classes_have_their_names(tmp_path):
    images = np.arange(2 * 784, dtype=np.uint16).astype(np.uint8).reshape(2, 28, 28)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 2, 28, 28) + images.tobytes())
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 2) + bytes([9, 0]))
    source = fashion_mnist.source(fashion_mnist.Options(str(tmp_path)), "train")
    x, y = source.fetch([0, 1]).values()
    assert (x[:, 0].numpy() == images).all()
    assert [source.class_names[label] for label in y] == ["Ankle boot", "T-shirt/top"]


def test_without_a_network_it_says_where_the_files_are(monkeypatch, tmp_path):
    monkeypatch.setenv("PARAGAN_OFFLINE", "1")
    monkeypatch.setenv("PARAGAN_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"zalandoresearch.*t10k-images-idx3-ubyte\.gz.*data\.path=DIR"):
        fashion_mnist.source(fashion_mnist.Options(), "held_out")
