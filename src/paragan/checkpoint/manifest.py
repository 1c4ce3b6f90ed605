"""Manifest of a checkpoint: the sha256 of every file, and which piece of which tensor is in it.

A group of tensors (one per player) is one file, `g.safetensors`, or one per rank that has a part of
it, `g.0-of-2.safetensors`. For every tensor in a file, the manifest has the shape of the whole, and
offset and length of the piece, per axis, and the pipeline stage that has the tensor, if any.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

from paragan.core.errors import CheckpointError
from paragan.core.files import read_bytes, write_text
from paragan.core.layout import Layout, TensorLayout, describe_gaps

MANIFEST = "manifest.json"
STATE = "state.json"
FORMAT = 1
MAX_JSON_BYTES = 64 << 20
_MAX_ITEM_BYTES = 16  # complex128
_FILE = re.compile(r"([^./\x00-\x1f]+)(?:\.\d{1,6}-of-\d{1,6})?\.safetensors", re.ASCII)
_KEYS = ("shape", "offset", "length")
Boxes = dict[str, dict[str, Any]]  # the pieces of tensors on a rank or in a file, as JSON values, by name


class NewerFormat(CheckpointError):
    """A checkpoint of a later version of paragan. It is not damaged: readers must not skip it."""


@dataclass(frozen=True)
class Manifest:
    """Content of a manifest: sha256 by file name (`sums`), boxes of each file by group."""

    sums: Mapping[str, str]
    groups: Mapping[str, Mapping[str, Layout]]

    @property
    def max_bytes(self) -> dict[str, int]:
        """Largest size of each file: its tensors in the widest type, and as much of names as the manifest may have."""
        numbers: dict[str, int] = {}
        for files in self.groups.values():
            numbers |= {name: sum(prod(box.length) for box in boxes.values()) for name, boxes in files.items()}
        return {name: _MAX_ITEM_BYTES * numbers.get(name, 0) + MAX_JSON_BYTES for name in self.sums}


def describe_boxes(boxes: Layout) -> Boxes:
    """Return the boxes as JSON values."""
    described: Boxes = {}
    for name, box in boxes.items():
        described[name] = {key: list(getattr(box, key)) for key in _KEYS} | {"stage": box.stage}
    return described


def assign_files(ranks: Sequence[Mapping[str, Boxes]]) -> list[dict[str, Boxes]]:
    """Return the boxes that each rank writes, by file name. ranks: boxes of each rank, by group.

    A box that several ranks have is written by the first of them.
    """
    known: set[str] = set()
    assigned: list[dict[str, Boxes]] = []
    for groups in ranks:
        new_boxes: dict[str, Boxes] = {}
        for group, boxes in groups.items():
            for name, box in boxes.items():
                key = f"{group} {name} {box}"
                if key not in known:
                    known.add(key)
                    new_boxes.setdefault(group, {})[name] = box
        assigned.append(new_boxes)
    counts = Counter(group for groups in assigned for group in groups)
    numbers = {group: count() for group in counts}
    return [
        {_file_name(group, next(numbers[group]), counts[group]): boxes for group, boxes in groups.items()}
        for groups in assigned
    ]


def _file_name(group: str, index: int, count: int) -> str:
    return f"{group}.safetensors" if count == 1 else f"{group}.{index}-of-{count}.safetensors"


def write_manifest(path: Path, sums: Mapping[str, str], pieces: Mapping[str, Boxes]) -> None:
    """Write the manifest of the checkpoint folder `path`, and check it. pieces: boxes by file."""
    manifest = {"format": FORMAT, "files": dict(sorted(sums.items())), "pieces": dict(sorted(pieces.items()))}
    write_text(path / MANIFEST, json.dumps(manifest))
    read_manifest(path)


def read_manifest(path: Path) -> Manifest:
    """Read and check the manifest of the checkpoint in the folder `path`."""
    manifest = read_json(path / MANIFEST)
    version = manifest.get("format")
    if type(version) is not int or version != FORMAT:
        kind = NewerFormat if type(version) is int and version > FORMAT else CheckpointError
        raise kind(
            f"checkpoint {path} has format {version!r}, but this paragan reads only format "
            f"{FORMAT}; use the paragan version that wrote it, or delete that folder to resume "
            "from the checkpoint before it"
        )
    sums = manifest.get("files")
    if not isinstance(sums, dict) or STATE not in sums:
        raise CheckpointError(f"checkpoint {path}: {STATE} is not listed in the manifest")
    try:
        boxes = {file: manifest["pieces"][file].items() for file in sums if file != STATE}
        pieces = {file: {name: _parse_box(box) for name, box in named} for file, named in boxes.items()}
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"checkpoint {path}: the manifest does not describe the tensors in its files; start anew with --fresh"
        ) from None
    return Manifest(sums, _group_files(path, pieces))


def _parse_box(values: Mapping[str, Any]) -> TensorLayout:
    shape, offset, length = (tuple(values[key]) for key in _KEYS)
    stage = values["stage"]
    if any(type(number) is not int for number in (*shape, *offset, *length, 0 if stage is None else stage)):
        raise TypeError(f"not integers: {values}"[:100])
    return TensorLayout(shape, offset, length, stage)


def _group_files(path: Path, pieces: Mapping[str, Layout]) -> dict[str, dict[str, Layout]]:
    """Group files by player. Raises `CheckpointError` if pieces do not form whole tensors."""
    groups: dict[str, dict[str, Layout]] = {}
    for file, boxes in pieces.items():
        match = _FILE.fullmatch(file)
        if match is None:
            problem = f"{file[:100]} is missing or damaged (checkpoints have no file of that name)"
            raise CheckpointError(f"checkpoint {path}: {problem}")
        groups.setdefault(match.group(1), {})[file] = boxes
    for group, files in groups.items():
        tensors: dict[str, list[TensorLayout]] = {}
        for boxes in files.values():
            for name, box in boxes.items():
                tensors.setdefault(name, []).append(box)
        for name, pieces_of_tensor in tensors.items():
            if gap := describe_gaps(pieces_of_tensor):
                problem = f"{group}: {name}: {gap} (files: {', '.join(sorted(files)[:5])})"
                raise CheckpointError(f"checkpoint {path}: {problem}")
    return groups


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file of a checkpoint."""
    try:
        values = json.loads(read_bytes(path, MAX_JSON_BYTES), object_pairs_hook=_without_repeats)
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise CheckpointError(f"checkpoint {path.parent}: {path.name} is missing or not JSON")
    return values


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is there twice, and readers differ in which one counts")
    return values
