"""Of files of torch.save only tensors are read; other files are one line, and nothing of them runs."""

import math
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from paragan.checkpoint.weight_files import open_weights
from paragan.core.errors import CheckpointError


class Trap:
    def __reduce__(self):
        return print, ("code of a file ran",)


class Gigabyte:
    """A number of numpy of this size, in a file of a hundred bytes."""

    def __reduce__(self):
        return np._core.multiarray.scalar, (np.dtype("V1000000000"),)


def expanded():
    return torch.zeros(1).expand(1 << 40)


def nested():
    """Three maps, each with the next a thousand times: a walk along every path would not end."""
    content = {"weight": torch.zeros(2)}
    for _ in range(3):
        content = {str(n): content for n in range(1000)}
    return content


def compressed(path):
    torch.save({"weight": torch.zeros(1000)}, path.with_suffix(".plain"))
    with zipfile.ZipFile(path.with_suffix(".plain")) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for member in plain.infolist():
            out.writestr(member.filename, plain.read(member))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"weight": torch.zeros(2), "more": Trap()}, "holds Python objects"),
        ({"weight": torch.zeros(2), "more": np.zeros(2)}, "holds Python objects"),
        ({"weight": expanded()}, "weight is not a plain tensor"),
        ({"weight": torch.eye(2).to_sparse()}, "weight is not a plain tensor"),
        (nested(), "holds no tensors with names"),
        ([torch.zeros(2)], "holds no tensors with names"),
        ({"optimizer": {"state": {0: torch.zeros(2)}, "param_groups": []}}, "holds no tensors with names"),
        (math.pi, "holds no tensors with names"),
    ],
)
def test_other_files_of_torch_are_one_line(tmp_path, capsys, zipped, content, text):
    path = tmp_path / "w.pth"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=text) as error:
        open_weights([path], "g.init.path")
    assert "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_damaged_and_compressed_files_of_torch_are_one_line(tmp_path):
    path = tmp_path / "w.pth"
    for zipped in (True, False):
        torch.save({"weight": torch.zeros(1000)}, path, _use_new_zipfile_serialization=zipped)
        path.write_bytes(path.read_bytes()[:900])
        with pytest.raises(CheckpointError, match=r"g.init.path .* (is damaged|holds Python objects)"):
            open_weights([path], "g.init.path")
    compressed(path)
    with pytest.raises(CheckpointError, match="compressed, which torch never writes"):
        open_weights([path], "g.init.path")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("number", [np.float64(7.5), np.int32(3), np.bool_(True), Gigabyte()])
def test_numbers_of_numpy_are_ignored_and_never_made(tmp_path, zipped, number):
    path = tmp_path / "w.pth"
    torch.save({"state_dict": {"weight": torch.ones(2)}, "best": number}, path, _use_new_zipfile_serialization=zipped)
    tracemalloc.start()
    weights = open_weights([path], "g.init.path")
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()
    assert weights.shapes == {"weight": (2,)}
