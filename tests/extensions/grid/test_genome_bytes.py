"""A genome's bytes are a safetensors file, whoever reads it."""

import json
from dataclasses import asdict

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load

from paragan.core.errors import CheckpointError
from paragan.core.types import Side
from paragan.extensions.grid.cell_state import CellState
from paragan.extensions.grid.genome import Genome, Traits

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
TRAITS = Traits(lr=1e-3, loss=2, cell=3, generation=4, memory="torch.optim.adam.Adam")
METADATA = {"traits": json.dumps(asdict(TRAITS))}


def test_serialized_genome_is_read_by_safetensors(tmp_path):
    raw = Genome(TENSORS, TRAITS).pack().numpy().tobytes()
    found = load(raw)
    assert found.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name
    (tmp_path / "genome").write_bytes(raw)
    with safe_open(tmp_path / "genome", "pt") as file:
        assert Traits.from_dict(json.loads(file.metadata()["traits"])) == TRAITS


def test_serialized_bytes_do_not_depend_on_tensor_order():
    turned = dict(reversed(TENSORS.items()))
    assert Genome(turned, TRAITS).file_bytes == Genome(TENSORS, TRAITS).file_bytes


def test_unpacked_genome_equals_the_genome():
    genome = Genome(TENSORS, TRAITS)
    found = Genome.unpack(genome.pack(), genome)
    assert found.tensors.keys() == TENSORS.keys() and found.traits == TRAITS and found.file_bytes == genome.file_bytes
    for name, value in TENSORS.items():
        assert found.tensors[name].dtype == value.dtype and torch.equal(found.tensors[name], value), name


def test_packed_cell_state_equals_the_cell_state():
    centre = {side: Genome(TENSORS, TRAITS) for side in Side}
    state = CellState(number=3, centre=centre, weights=(0.5, 0.5), counters=dict.fromkeys(Side, (1, 2, 3)))
    messages = state.pack()
    assert len(messages) == 3
    found = CellState.unpack(messages, centre)
    assert found.to_dict() == state.to_dict() and found.number == 3
    assert [found.centre[side].file_bytes for side in Side] == [centre[side].file_bytes for side in Side]
    for invalid in ([], messages[:1], messages[1:], [*messages, messages[-1]]):
        with pytest.raises(CheckpointError, match=r"the received bytes are not a valid (cell|genome)"):
            CellState.unpack(invalid, centre)


def made(header: object, body: int = 8) -> torch.Tensor:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return torch.frombuffer(bytearray(len(text).to_bytes(8, "little") + text + b"\0" * body), dtype=torch.uint8)


def one(**changes: object) -> dict[str, object]:
    about = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return {"__metadata__": METADATA, "net/x": about}


def test_unpack_of_a_file_by_others_is_valid():
    assert Genome.unpack(made(one()), Genome({"net/x": torch.zeros(2)}, TRAITS)).traits == TRAITS


@pytest.mark.parametrize(
    "data",
    [
        made(one(data_offsets=[0, 4])),
        made(one(), body=4),
        made(one(), body=12),
        made(one(shape=[1 << 62, 1 << 62])),
        made(one(dtype="F33")),
        made({"net/x": one()["net/x"]}),
        made({**one(), "net/y": one()["net/x"]}),
        made([1, 2]),
        made(one())[:-9],
        made(one())[:5],
        torch.tensor([255] * 24, dtype=torch.uint8),
        torch.empty(0, dtype=torch.uint8),
        torch.tensor([16] + [0] * 7 + [ord("[")] * 16, dtype=torch.uint8),
        made({"net/x": 1, "__metadata__": {"traits": "[" * 9}}),
        made(one(shape=[1], data_offsets=[0, 4]), body=4),
    ],
)
def test_unpack_of_invalid_data_raises(data):
    like = Genome({"net/x": torch.zeros(2)}, TRAITS)
    with pytest.raises(CheckpointError, match="genome"):
        Genome.unpack(data, like)


def test_unpack_of_a_deeply_nested_header_raises():
    deep = b"[" * (1 << 17)
    data = torch.frombuffer(bytearray(len(deep).to_bytes(8, "little") + deep), dtype=torch.uint8)
    with pytest.raises(CheckpointError, match="genome: the received bytes are not a valid genome"):
        Genome.unpack(data, Genome(TENSORS, TRAITS))
