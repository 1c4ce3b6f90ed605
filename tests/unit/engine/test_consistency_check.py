"""Sums over bits see what a difference of numbers would not."""

import pytest
import torch

from paragan.engine.consistency import checksum


def sums(tensor):
    return checksum(tensor).tolist()


TENSORS = {
    "float32": torch.randn(3, 1111, generator=torch.Generator().manual_seed(0)),
    "float64": torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    "bfloat16": torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).bfloat16(),
    "a number": torch.tensor(0.1),
    "counts": torch.arange(2**13),
    "none": torch.zeros(0, 4),
    "flags": torch.tensor([True, False, True]),
}


@pytest.mark.parametrize("name", TENSORS)
def test_checksum_is_independent_of_memory_layout(name):
    tensor = TENSORS[name]
    elsewhere = torch.cat([tensor.new_zeros(1), tensor.reshape(-1)])[1:].view(tensor.shape)
    transposed = tensor.T.contiguous().T if tensor.dim() == 2 else tensor.clone()
    assert sums(tensor) == sums(elsewhere) == sums(transposed)


@pytest.mark.parametrize("name", [name for name in TENSORS if name not in ("none", "flags")])
def test_checksum_detects_any_flipped_bit(name):
    tensor = TENSORS[name]
    for place in {0, tensor.numel() // 2, tensor.numel() - 1}:
        other = tensor.clone().reshape(-1)
        here = other[place]
        other[place] = torch.nextafter(here, here + 1) if other.is_floating_point() else here + 1
        assert sums(other.view(tensor.shape)) != sums(tensor)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (0, 1024), (0, 1025), (5, 2100), (1030, 2100), (2048, 2101)])
def test_checksum_detects_swapped_words(a, b):
    words = torch.arange(1.0, 2103.0, dtype=torch.float64)
    other = words.clone()
    other[[a, b]] = other[[b, a]]
    assert sums(other)[0] == sums(words)[0]
    assert sums(other) != sums(words)


def test_checksum_distinguishes_nan_and_signed_zero():
    assert sums(torch.tensor([0.0])) != sums(torch.tensor([-0.0]))
    assert sums(torch.tensor([float("nan")])) == sums(torch.tensor([float("nan")]))
