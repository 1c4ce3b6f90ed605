"""Reader of checkpoints: files are verified first, then tensors are read one at a time. Nothing is unpickled.

A group of tensors (one per player) is one file, `g.safetensors`, or one file per shard, `g.0-of-2.safetensors`: each
holds a slice of every sharded tensor along the first axis, and the first one holds all tensors that are not sharded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paragan.core.errors import CheckpointError, is_out_of_memory
from paragan.core.files import open_regular_file, read_bytes
from paragan.core.pieces import StoredTensors

MANIFEST, STATE = "manifest.json", "state.json"
FORMAT = 1
_MAX_JSON_BYTES = 64 << 20
_FILE = re.compile(r"([^.]+)(?:\.(\d{1,6})-of-(\d{1,6}))?\.safetensors", re.ASCII)
_UNREADABLE = (SafetensorError, OSError, TypeError, ValueError, RuntimeError)


class NewerFormat(CheckpointError):
    """A checkpoint written by a later version of paragan: it is not damaged, so readers must not skip it."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. groups: tensors by group and name, read on access. values: JSON numbers, strings and maps."""

    step: int
    groups: Mapping[str, StoredTensors]
    values: Mapping[str, Any]
    path: Path


def read_checkpoint(path: Path, only: str | None = None) -> Checkpoint:
    """Verify the checkpoint in the folder `path` against its manifest and open it.

    only: name of the one group to verify and open; None: all groups.
    Raises `CheckpointError` that names the first missing or damaged file.
    """
    sums = _read_manifest(path)
    files = _select_files(path, sums, only)
    for name in (STATE, *chain.from_iterable(files.values())):
        if Path(name).name != name or not (path / name).is_file() or file_sha256(path / name) != sums[name]:
            raise CheckpointError(f"checkpoint {path}: {name} is missing or damaged (its sha256 is not the manifest's)")
    return _open(path, files)


def open_verified(path: Path) -> Checkpoint:
    """Open a checkpoint that another rank has verified."""
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint {path}: visible to rank 0 but not to this rank; all hosts need a shared file system"
        )
    return _open(path, _select_files(path, _read_manifest(path), None))


def _open(path: Path, files: Mapping[str, list[str]]) -> Checkpoint:
    state = read_json(path / STATE)
    if not isinstance(state.get("step"), int) or not isinstance(state.get("values"), dict):
        raise CheckpointError(f"checkpoint {path}: {STATE} has no step or no values")
    groups = {group: _open_group([path / name for name in names]) for group, names in files.items()}
    return Checkpoint(state["step"], groups, state["values"], path)


def _read_manifest(path: Path) -> dict[str, str]:
    """Read the sha256 of the checkpoint's files, by name."""
    manifest = read_json(path / MANIFEST)
    version = manifest.get("format")
    if type(version) is int and version > FORMAT:
        raise NewerFormat(
            f"checkpoint {path} has format {version}, but this paragan reads only format {FORMAT}; use the paragan "
            "version that wrote it, or delete that folder to resume from the checkpoint before it"
        )
    if version != FORMAT:
        raise CheckpointError(
            f"checkpoint {path} has format {version!r}, but this paragan reads only format {FORMAT}; use the paragan "
            "version that wrote it"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or STATE not in files:
        raise CheckpointError(f"checkpoint {path}: {STATE} is not listed in the manifest")
    return files


def _select_files(path: Path, names: Iterable[str], only: str | None) -> dict[str, list[str]]:
    try:
        groups = group_files(name for name in names if name != STATE)
    except CheckpointError as error:
        raise CheckpointError(f"checkpoint {path}: {error}") from None
    if only is not None and only not in groups:
        raise CheckpointError(f"checkpoint {path}: {only}.safetensors is missing or damaged (not in the manifest)")
    return groups if only is None else {only: groups[only]}


def group_files(names: Iterable[str]) -> dict[str, list[str]]:
    """Sort files by group and shard number. Raises `CheckpointError` where a shard is missing."""
    groups: dict[str, dict[tuple[int, int], str]] = {}
    for name in names:
        match = _FILE.fullmatch(name)
        if match is None:
            raise CheckpointError(f"{name[:100]} is missing or damaged (checkpoints have no file of that name)")
        group, index, count = match.groups()
        shard = (0, 1) if index is None else (int(index), int(count))
        groups.setdefault(group, {})[shard] = name
    for group, shards in groups.items():
        if sorted(shards) != [(index, len(shards)) for index in range(len(shards))]:
            files = ", ".join(sorted(shards.values())[:5])
            raise CheckpointError(f"{group}: shards are missing or do not belong together (files: {files})")
    return {group: [shards[key] for key in sorted(shards)] for group, shards in groups.items()}


def _open_group(paths: list[Path]) -> StoredTensors:
    """Open the tensors of one group; shards are concatenated on access."""
    files: dict[str, list[Any]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for path in paths:
        try:
            with open_regular_file(path):  # safetensors would block on a pipe
                file: Any = safe_open(path, "pt")
            shard = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 no mapping
        except _UNREADABLE:
            raise CheckpointError(
                f"checkpoint {path}: not a safetensors file; pickled weights are never read: convert them first"
            ) from None
        for name, shape in shard.items():
            files.setdefault(name, []).append(file)
            shapes[name] = _extend_shape(shapes.get(name), shape, f"{path}: {name}")

    def whole(name: str) -> Tensor:
        try:
            shards: list[Tensor] = [file.get_tensor(name) for file in files[name]]
        except _UNREADABLE as error:
            text = " ".join(str(error).split())[:100]
            raise CheckpointError(f"checkpoint {paths[0].parent}: {name} cannot be read ({text})") from None
        return shards[0] if len(shards) == 1 else torch.cat(shards)

    return StoredTensors(shapes, whole)


def _extend_shape(shape: tuple[int, ...] | None, shard: tuple[int, ...], where: str) -> tuple[int, ...]:
    if shape is None:
        return shard
    if not shard or shape[1:] != shard[1:]:
        raise CheckpointError(f"checkpoint {where}: a shard of shape {shard} does not fit the shape {shape} before it")
    return (shape[0] + shard[0], *shard[1:])


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file of a checkpoint."""
    try:
        values = json.loads(read_bytes(path, _MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CheckpointError(f"checkpoint {path.parent}: {path.name} is missing or not JSON")
    return values


def file_sha256(path: Path) -> str:
    """Compute the sha256 of a file, in hexadecimal."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def restoring(checkpoint: Checkpoint) -> Iterator[None]:
    """Raise `CheckpointError` for a missing key or an invalid value that the block meets in `checkpoint`."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"checkpoint {checkpoint.path}: {error} is missing; start anew with --fresh") from None
    except (TypeError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        text = " ".join(str(error).split())[:100]
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: invalid value ({text}); start anew with --fresh"
        ) from None


def read_counts(values: Any, *names: str) -> dict[str, int]:
    """Read these counters of a checkpoint. Raises `ValueError` unless they are integers in [0, 2^48)."""
    counts = {name: values[name] for name in names}
    if any(type(count) is not int or not 0 <= count < 1 << 48 for count in counts.values()):
        raise ValueError(f"{counts}")
    return counts
