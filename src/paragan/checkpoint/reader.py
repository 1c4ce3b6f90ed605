"""A checkpoint as it lies on disk: its files verified, then its tensors read one at a time. Nothing is unpickled.

A group of tensors (one per player) is one file, `g.safetensors`, or a file per piece, `g.0-of-2.safetensors`: of a
tensor that is cut each holds a piece along the first axis; what is whole lies in the first. Format 1 knew one file per
group."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file, read_bytes
from paragan.core.pieces import StoredTensors

MANIFEST, STATE = "manifest.json", "state.json"
_FORMATS = (1, 2)
_MOST_JSON_BYTES = 64 << 20
_FILE = re.compile(r"([^.]+)(?:\.(\d{1,6})-of-(\d{1,6}))?\.safetensors", re.ASCII)
_UNREADABLE = (SafetensorError, OSError, TypeError, ValueError, RuntimeError)


class NewerFormat(CheckpointError):
    """Written by a later paragan: not damaged, and not to be passed over."""


@dataclass(frozen=True)
class Checkpoint:
    """groups: tensors by name and group, read when asked for. values: plain numbers and strings."""

    step: int
    groups: Mapping[str, StoredTensors]
    values: Mapping[str, Any]
    path: Path


def read_checkpoint(path: Path, only: str | None = None) -> Checkpoint:
    """One checkpoint, verified against its manifest; `CheckpointError` names the first file that does not hold.

    only: this group; files of others are not looked at.
    """
    sums = _read_manifest(path)
    wanted = _select_files(path, sums, only)
    for name in (STATE, *(name for files in wanted.values() for name in files)):
        if Path(name).name != name or not (path / name).is_file() or file_sha256(path / name) != sums[name]:
            raise CheckpointError(f"checkpoint {path}: {name} is missing or damaged (its sha256 is not the manifest's)")
    return _open(path, wanted)


def open_verified(path: Path) -> Checkpoint:
    """As `read`, of a checkpoint that another rank has verified."""
    if not path.is_dir():
        raise CheckpointError(f"checkpoint {path}: not to be seen here, but on rank 0: all hosts need one file system")
    return _open(path, _select_files(path, _read_manifest(path), None))


def _open(path: Path, files: Mapping[str, list[str]]) -> Checkpoint:
    state = read_json(path / STATE)
    if not isinstance(state.get("step"), int) or not isinstance(state.get("values"), dict):
        raise CheckpointError(f"checkpoint {path}: {STATE} lacks the step or its values")
    groups = {group: _open_group([path / name for name in names]) for group, names in files.items()}
    return Checkpoint(state["step"], groups, state["values"], path)


def _read_manifest(path: Path) -> dict[str, str]:
    """sha256 of the checkpoint's files, by name."""
    manifest = read_json(path / MANIFEST)
    found = manifest.get("format")
    if type(found) is int and found > _FORMATS[-1]:
        raise NewerFormat(
            f"checkpoint {path} has format {found}, and this paragan reads formats up to {_FORMATS[-1]}; use the "
            "paragan that wrote it, or delete that folder to resume from the checkpoint before it"
        )
    if found not in _FORMATS:
        raise CheckpointError(
            f"checkpoint {path}: found format {manifest.get('format')!r}, expected {_FORMATS[-1]} or less; "
            "use the paragan that wrote it"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or STATE not in files:
        raise CheckpointError(f"checkpoint {path}: the manifest lists no {STATE}")
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
    """Files by group, in the order of their pieces; `CheckpointError` where some are lacking."""
    found: dict[str, dict[tuple[int, int], str]] = {}
    for name in names:
        told = _FILE.fullmatch(name)
        if told is None:
            raise CheckpointError(f"{name[:100]} is missing or damaged (no file of a checkpoint is called so)")
        group, index, of = told.groups()
        found.setdefault(group, {})[(0, 1) if index is None else (int(index), int(of))] = name
    for group, pieces in found.items():
        if sorted(pieces) != [(index, len(pieces)) for index in range(len(pieces))]:
            told_of = ", ".join(sorted(pieces.values())[:5])
            raise CheckpointError(f"{group}: found the files {told_of}, expected all pieces of one cut")
    return {group: [pieces[place] for place in sorted(pieces)] for group, pieces in found.items()}


def _open_group(paths: list[Path]) -> StoredTensors:
    """The tensors of one group; of those that are cut the pieces are joined when they are read."""
    held: dict[str, list[Any]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for path in paths:
        try:
            with open_regular_file(path):  # safetensors would wait for a pipe
                file: Any = safe_open(path, "pt")
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 no mapping
        except _UNREADABLE:
            raise CheckpointError(
                f"checkpoint {path}: not a safetensors file; pickled weights are never read: convert them first"
            ) from None
        for name, shape in found.items():
            held.setdefault(name, []).append(file)
            shapes[name] = _extend_shape(shapes.get(name), shape, f"{path}: {name}")

    def whole(name: str) -> Tensor:
        try:
            pieces: list[Tensor] = [file.get_tensor(name) for file in held[name]]
        except _UNREADABLE as error:
            told = " ".join(str(error).split())[:100]
            raise CheckpointError(f"checkpoint {paths[0].parent}: {name} cannot be read ({told})") from None
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    return StoredTensors(shapes, whole)


def _extend_shape(so_far: tuple[int, ...] | None, piece: tuple[int, ...], where: str) -> tuple[int, ...]:
    if so_far is None:
        return piece
    if not piece or so_far[1:] != piece[1:]:
        raise CheckpointError(f"checkpoint {where}: found a piece of shape {piece} after {so_far}")
    return (so_far[0] + piece[0], *piece[1:])


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint."""
    try:
        found = json.loads(read_bytes(path, _MOST_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CheckpointError(f"checkpoint {path.parent}: {path.name} is missing or not JSON")
    return found


def file_sha256(path: Path) -> str:
    """Of a file, in hexadecimal."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_counts(values: Any, *names: str) -> dict[str, int]:
    """These of a checkpoint's numbers; `ValueError` for what no run counts to."""
    counts = {name: values[name] for name in names}
    if any(type(count) is not int or not 0 <= count < 1 << 48 for count in counts.values()):
        raise ValueError(f"{counts}")
    return counts
