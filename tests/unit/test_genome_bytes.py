"""A genome's bytes are a safetensors file, whoever reads it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, save

from paragan.coevolution.genome import _DTYPES, Genome, Traits

TENSORS = {
    "net/odd": torch.arange(3, dtype=torch.uint8),
    "net/weight": torch.randn(3, 5),
    "net/turned": torch.randn(4, 3).T,
    "net/strided": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "optimizer/step": torch.tensor(7.0),
    "optimizer/count": torch.tensor([1, -2]),
    "net/none": torch.empty(0, 3),
    "net/fine": torch.randn(3, dtype=torch.float64),
    "net/low": torch.randn(3).bfloat16(),
    "net/mask": torch.tensor([True, False, True]),
}
TRAITS = Traits(1e-3, 2, 3, 4, "torch.optim.adam.Adam")


def test_the_library_reads_what_was_written(tmp_path):
    raw = Genome(TENSORS, TRAITS).packed().numpy().tobytes()
    found = load(raw)
    assert found.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name
    (tmp_path / "genome").write_bytes(raw)
    with safe_open(tmp_path / "genome", "pt") as file:
        assert Traits.read(json.loads(file.metadata()["traits"])) == TRAITS


def test_the_order_of_the_tensors_is_of_no_account():
    turned = dict(reversed(TENSORS.items()))
    assert Genome(turned, TRAITS).digest == Genome(TENSORS, TRAITS).digest


def test_every_tensor_is_aligned():
    raw = Genome(TENSORS, TRAITS).packed().numpy().tobytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    header = json.loads(raw[8 : 8 + length])
    assert all(header[name]["data_offsets"][0] % value.element_size() == 0 for name, value in TENSORS.items())


@pytest.mark.parametrize("dtype", _DTYPES)
def test_formats_are_named_as_the_library_does(dtype):
    raw = save({"x": torch.zeros(2, dtype=dtype)})
    assert json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["x"]["dtype"] == _DTYPES[dtype]
