"""Safe reader of the files of `torch.export.save`: JSON and raw numbers, nothing is unpickled.

`torch.export.load` unpickles the example inputs of every file, and evaluates expressions from it. The
computation does not need them: the graph is JSON, and weights are bytes with a shape.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paragan.core.errors import DataError
from paragan.core.files import open_regular_file
from paragan.storage import zip_files

DTYPES = {  # numbers of the format, from its `ScalarType`
    **{1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16},
    **{7: torch.float32, 8: torch.float64, 12: torch.bool, 13: torch.bfloat16},
}
_SCHEMA = 8  # major version of the format
_MAX_JSON_BYTES = 256 << 20
_CHUNK_BYTES = 1 << 20
INVALID = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, RecursionError)


@dataclass(frozen=True)
class ProgramFile:
    """Content of a program file. graph: the `graph_module` of its JSON. weights: tensors by input name."""

    graph: dict[str, Any]
    weights: dict[str, Tensor]
    sha256: str


def read_program_file(path: Path, sha256: str | None = None) -> ProgramFile:
    """Read the graph and the weights of a .pt2 file.

    sha256: of the expected file; None: any. Raises `DataError` for another file, and for one with
    pickled weights.
    """
    found = _sha256(path)
    if sha256 is not None and found != sha256:
        raise DataError(f"{path}: its sha256 is {found}, not {sha256}; get the right file, or correct the setting")
    with zip_files.open_zip(path) as archive:
        try:
            return _read(archive, path, found)
        except (KeyError, RecursionError) as error:
            raise DataError(
                f"{path}: not a program of torch.export.save that can be read ({type(error).__name__}: {error}); "
                "export it again"
            ) from None


def _read(archive: zipfile.ZipFile, path: Path, sha256: str) -> ProgramFile:
    root = archive.namelist()[0].partition("/")[0]
    program = _read_json(archive, f"{root}/models/model.json", path)
    version = program["schema_version"]["major"]
    if version != _SCHEMA:
        raise DataError(f"{path}: version {version} of the format is not supported, only {_SCHEMA}; export it again")
    stored: dict[str, Tensor] = {}
    for kind in ("weights", "constants"):
        folder = f"{root}/data/{kind}"
        payloads = _read_json(archive, f"{folder}/model_{kind}_config.json", path)["config"]
        stored |= {name: _read_tensor(archive, folder, payload, path) for name, payload in payloads.items()}
    graph = program["graph_module"]
    return ProgramFile(graph, _by_input(graph["signature"]["input_specs"], stored), sha256)


def _by_input(specs: list[dict[str, Any]], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by the name of the graph's input, instead of the module's parameter."""
    found = {}
    for spec in specs:
        ((kind, value),) = spec.items()
        if kind in ("parameter", "buffer", "tensor_constant"):
            found[value["arg"]["name"]] = stored[value[f"{kind}_name"]]
    return found


def _read_json(archive: zipfile.ZipFile, name: str, path: Path) -> Any:
    return json.loads(zip_files.read_member(archive, archive.getinfo(name), str(path), _MAX_JSON_BYTES))


def _read_tensor(archive: zipfile.ZipFile, folder: str, payload: dict[str, Any], path: Path) -> Tensor:
    if payload["use_pickle"] or payload["tensor_meta"] is None:
        raise DataError(
            f"{path}: {payload['path_name']} would have to be unpickled; export a network whose parameters are plain "
            "tensors"
        )
    meta = payload["tensor_meta"]
    info = archive.getinfo(f"{folder}/{payload['path_name']}")
    content = zip_files.read_member(archive, info, str(path), path.stat().st_size)
    dtype = DTYPES[meta["dtype"]]
    shape = [size["as_int"] for size in meta["sizes"]]
    if not content:
        return torch.zeros(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(content), dtype=dtype)
    strides = [stride["as_int"] for stride in meta["strides"]]
    return torch.as_strided(flat, shape, strides, meta["storage_offset"]["as_int"])


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with zip_files.raise_data_errors(str(path)), open_regular_file(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
