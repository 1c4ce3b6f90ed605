"""Files of `torch.export` are interpreted as torch runs them, and nothing in them is unpickled or evaluated."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import pytest
import torch
from torch._export.serde import schema

from paragan.core.errors import DataError
from paragan.storage import program_file, program_graph
from paragan.storage.exported_network import ExportedNetwork


class Bomb:
    """What unpickles to a file that must not exist."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def rewritten(path, tmp_path, changes=None, edit=None):
    """A copy of a program with other members, or another JSON of its graph."""
    copy = tmp_path / "changed.pt2"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as out:
        for info in archive.infolist():
            content = archive.read(info)
            name = info.filename.partition("/")[2]
            if edit and name == "models/model.json":
                program = json.loads(content)
                edit(program)
                content = json.dumps(program)
            out.writestr(info.filename, (changes or {}).get(name, content))
    return copy


def test_transformer_equals_torch(transformer_file):
    network, path = transformer_file
    found = ExportedNetwork(path)
    assert (found.output_names, found.input_shape) == (("cls", "patches"), (3, 28, 28))
    x = torch.randn(5, 3, 28, 28)
    with torch.no_grad():
        expected = network(x)
        assert all(torch.equal(value, expected[name]) for name, value in found(x).items())


@pytest.mark.parametrize("size", [8, 22])
def test_network_of_any_size_equals_torch(maps_file, size):
    network, path = maps_file
    found = ExportedNetwork(path)
    assert (found.output_names, found.input_shape) == (("0", "1"), (3, None, None))
    x = torch.randn(3, 3, size, size)
    with torch.no_grad():
        assert all(map(torch.equal, found(x).values(), network(x)))


def test_network_runs_in_half_precision_and_frees_what_it_does_not_need(transformer_file):
    network, path = transformer_file
    found = ExportedNetwork(path).to(torch.bfloat16)
    x = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        value = found(x.bfloat16())["cls"]
        assert value.dtype == torch.bfloat16
        assert torch.allclose(value.float(), network(x)["cls"], atol=0.1)
    values = dict.fromkeys(["x", *found._weight_names])
    freed = [name for instruction in found._instructions for name in instruction.last_uses]
    written = [entry["as_tensor"]["name"] for i in found._instructions for entry in i.outputs if "as_tensor" in entry]
    assert set(written) - set(freed) == set(found._outputs.values())
    assert len(freed) == len(set(freed)) and not set(freed) & set(values)


def test_pickles_in_the_file_are_not_opened(transformer_file, tmp_path):
    trap = tmp_path / "opened"
    pickled = io.BytesIO()
    torch.save(Bomb(trap), pickled)
    members = {
        "data/sample_inputs/model.pt": pickled.getvalue(),
        "data/weights/model.pt": pickle.dumps(Bomb(trap)),
        "data/constants/model.pt": pickle.dumps(Bomb(trap)),
    }
    found = ExportedNetwork(rewritten(transformer_file[1], tmp_path, members))
    found(torch.zeros(1, 3, 28, 28))
    assert not trap.exists()
    torch.load(io.BytesIO(pickled.getvalue()), weights_only=False).close()
    assert trap.exists()  # the trap works


def test_weights_that_are_pickled_are_refused(transformer_file, tmp_path):
    with zipfile.ZipFile(transformer_file[1]) as archive:
        root = archive.namelist()[0].partition("/")[0]
        config = json.loads(archive.read(f"{root}/data/weights/model_weights_config.json"))
    next(iter(config["config"].values()))["use_pickle"] = True
    changed = rewritten(transformer_file[1], tmp_path, {"data/weights/model_weights_config.json": json.dumps(config)})
    with pytest.raises(DataError, match="weight_0 would have to be unpickled"):
        ExportedNetwork(changed)


def set_target(program, target):
    program["graph_module"]["graph"]["nodes"][1]["target"] = target


@pytest.mark.parametrize(
    "target",
    [
        *("torch.os.system", "torch.ops.aten.save.default", "torch.ops.aten.from_file.default", "os.system"),
        *("_operator.attrgetter", "math.sqrt", "torch.ops.higher_order.cond", "torch.ops.aten.rand.default"),
    ],
)
def test_operation_that_is_not_known_to_be_harmless_is_refused(transformer_file, tmp_path, target):
    changed = rewritten(transformer_file[1], tmp_path, edit=lambda program: set_target(program, target))
    with pytest.raises(DataError, match=f"the operation {target} is not supported; export the network after"):
        ExportedNetwork(changed)


def fix_batch(program):
    program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_int": 2}


def change_version(program):
    program["schema_version"]["major"] = 9


def change_weight(program):
    node = program["graph_module"]["graph"]["nodes"][1]
    node["target"] = "torch.ops.aten.add_.Tensor"
    node["inputs"][0] = {"name": "self", "arg": {"as_tensor": {"name": "p_cls_token"}}, "kind": 1}


def change_buffer(program):
    program["graph_module"]["signature"]["output_specs"][0] = {"buffer_mutation": {}}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (fix_batch, r"takes 2 images at a time; export it with dynamic_shapes=\(\{0: torch.export.Dim"),
        (change_version, "version 9 of the format is not supported, only 8"),
        (change_weight, "changes the images or a weight"),
        (change_buffer, "changes its buffers; export it after `.eval"),
        (lambda program: set_target(program, "torch.ops.aten.add.None"), "has no operation torch.ops.aten.add.None"),
        (lambda program: program.pop("graph_module"), "not a program of torch.export.save"),
        (lambda program: program["graph_module"].pop("graph"), "invalid program"),
    ],
)
def test_invalid_program_is_refused_in_one_line(transformer_file, tmp_path, edit, message):
    with pytest.raises(DataError, match=message) as caught:
        ExportedNetwork(rewritten(transformer_file[1], tmp_path, edit=edit))
    assert "\n" not in str(caught.value) and "changed.pt2: " in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps({})])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "other.pt2").write_bytes(content)
    with pytest.raises(DataError, match=r"other\.pt2: "):
        ExportedNetwork(tmp_path / "other.pt2")


def test_another_sha256_and_a_missing_file_are_refused(transformer_file, tmp_path):
    with pytest.raises(DataError, match=f"not {'0' * 64}"):
        ExportedNetwork(transformer_file[1], "0" * 64)
    with pytest.raises(DataError, match="no such file"):
        ExportedNetwork(tmp_path / "none.pt2")


def test_failing_operation_names_the_size_of_the_images(transformer_file):
    with pytest.raises(DataError, match=r"torch\.ops\.aten\.\w+\.\w+ failed for images \(2, 3, 35, 35\)"):
        ExportedNetwork(transformer_file[1])(torch.zeros(2, 3, 35, 35))


def test_numbers_of_the_format_are_those_of_torch():
    assert schema.SCHEMA_VERSION[0] == program_file._SCHEMA
    names = {number: str(dtype).removeprefix("torch.") for number, dtype in program_file.DTYPES.items()}
    renamed = {"BYTE": "uint8", "CHAR": "int8", "SHORT": "int16", "INT": "int32", "LONG": "int64"}
    renamed |= {"HALF": "float16", "FLOAT": "float32", "DOUBLE": "float64"}
    for number, name in names.items():
        official = schema.ScalarType(number).name
        assert renamed.get(official, official.lower()) == name
    formats = {schema.MemoryFormat(number).name for number in program_graph._MEMORY_FORMATS}
    assert formats == {"ContiguousFormat", "ChannelsLast", "PreserveFormat"}
    assert schema.Layout.Strided == program_graph._STRIDED
    assert schema.ArgumentKind.KEYWORD == program_graph._KEYWORD


def test_every_known_operation_is_one_of_torch():
    missing = [name for name in program_graph._OPERATIONS if not hasattr(torch.ops.aten, name)]
    assert not missing
