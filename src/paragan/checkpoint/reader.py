"""Reader of checkpoints: files are verified, then tensors are read one at a time; nothing is unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from paragan.checkpoint.manifest import STATE, Manifest, read_json, read_manifest
from paragan.core.errors import CheckpointError, describe_error, is_out_of_memory
from paragan.core.files import open_regular_file
from paragan.core.layout import Layout, StoredTensors, TensorLayout

# what safetensors and torch raise for a damaged file
UNREADABLE = (SafetensorError, OSError, TypeError, ValueError, RuntimeError)


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    groups: tensors by group and name, read on access. values: JSON numbers, strings and maps.
    """

    step: int
    groups: Mapping[str, StoredTensors]
    values: Mapping[str, Any]
    path: Path


def read_checkpoint(path: Path, only: str | None = None) -> Checkpoint:
    """Verify the checkpoint in the folder `path` against its manifest and open it.

    only: name of the one group to verify and open; None: all groups. Raises `CheckpointError` that
    names the first missing or damaged file.
    """
    manifest = read_manifest(path)
    if only is not None and only not in manifest.groups:
        raise CheckpointError(f"checkpoint {path}: {only}.safetensors is missing or damaged (not in the manifest)")
    if only is not None:
        manifest = Manifest(manifest.sums, {only: manifest.groups[only]})
    for name in (STATE, *(file for files in manifest.groups.values() for file in files)):
        if not (path / name).is_file() or file_sha256(path / name) != manifest.sums[name]:
            raise CheckpointError(f"checkpoint {path}: {name} is missing or damaged (its sha256 is not the manifest's)")
    return _open(path, manifest)


def open_verified(path: Path) -> Checkpoint:
    """Open a checkpoint that another rank has verified."""
    if not path.is_dir():
        raise CheckpointError(
            f"checkpoint {path}: visible to rank 0 but not to this rank; all hosts need a shared file system"
        )
    return _open(path, read_manifest(path))


def _open(path: Path, manifest: Manifest) -> Checkpoint:
    state = read_json(path / STATE)
    if not isinstance(state.get("step"), int) or not isinstance(state.get("values"), dict):
        raise CheckpointError(f"checkpoint {path}: {STATE} has no step or no values")
    groups = {group: _open_group(path, files) for group, files in manifest.groups.items()}
    return Checkpoint(state["step"], groups, state["values"], path)


def _open_group(path: Path, files: Mapping[str, Layout]) -> StoredTensors:
    """Open the tensors of one group. files: the box (`core.layout`) of each piece of a tensor that is in a file."""
    pieces: dict[str, list[tuple[TensorLayout, Any]]] = {}
    for file, boxes in files.items():
        opened = _open_file(path / file, boxes)
        for name, box in boxes.items():
            pieces.setdefault(name, []).append((box, opened))

    def read(name: str, wanted: TensorLayout) -> Tensor:
        try:
            return assemble(name, wanted, pieces[name])
        except UNREADABLE as error:
            raise CheckpointError(f"checkpoint {path}: {name} cannot be read ({describe_error(error)[:100]})") from None

    return StoredTensors({name: parts[0][0].shape for name, parts in pieces.items()}, read)


def _open_file(path: Path, boxes: Layout) -> Any:
    """Open a file; refuse one that does not hold these boxes."""
    try:
        with open_regular_file(path):  # safetensors would block on a pipe
            file: Any = safe_open(path, "pt")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 no mapping
    except OSError as error:
        raise CheckpointError(f"checkpoint {path}: cannot be read ({describe_error(error)[:100]})") from None
    except UNREADABLE:
        raise CheckpointError(
            f"checkpoint {path}: not a safetensors file; pickled weights are never read: convert them first"
        ) from None
    if shapes != {name: box.length for name, box in boxes.items()}:
        raise CheckpointError(
            f"checkpoint {path}: its tensors are not those that the manifest lists; delete the folder of the checkpoint"
        )
    return file


def assemble(name: str, wanted: TensorLayout, pieces: list[tuple[TensorLayout, Any]]) -> Tensor:
    """Read a box of a tensor: only the overlapping parts of its pieces, which cover it, as the manifest has checked."""
    for box, file in pieces:
        if box == wanted:
            whole: Tensor = file.get_tensor(name)
            return whole
    first = pieces[0][1].get_slice(name)[:0]  # for its type; a tensor without axes has one box, returned above
    tensor = torch.empty(wanted.length, dtype=first.dtype)
    for box, file in pieces:
        common = box.overlap(wanted)
        if common is not None:
            part = file.get_slice(name)[common.within(box)]
            if part.dtype != tensor.dtype:
                raise TypeError(f"pieces of {tensor.dtype} and {part.dtype}")
            tensor[common.within(wanted)] = part
    return tensor


def file_sha256(path: Path) -> str:
    """Compute the sha256 of a file, in hexadecimal."""
    with open_regular_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def restoring(checkpoint: Checkpoint) -> Iterator[None]:
    """Raise `CheckpointError` if the block meets a missing key or an invalid value."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"checkpoint {checkpoint.path}: {error} is missing; start anew with --fresh") from None
    except (TypeError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise CheckpointError(
            f"checkpoint {checkpoint.path}: invalid value ({describe_error(error)[:100]}); start anew with --fresh"
        ) from None


def saved_base(values: Mapping[str, Any], side: str) -> str:
    """Return the sha256 of a player's weights that a checkpoint does not hold; empty if it holds all."""
    bases = values.get("base")
    return str(bases.get(side, "")) if isinstance(bases, Mapping) else ""


def check_base(path: Path, values: Mapping[str, Any], side: str, sha256: str) -> None:
    """Raise `CheckpointError` if the base weights of a player, which a checkpoint omits, differ from those of the save.

    sha256: their fingerprint; empty if all are in the checkpoint.
    """
    saved = saved_base(values, side)
    if saved != sha256:
        before, now = (f"{text[:12]}…" if text else "none" for text in (saved, sha256))
        raise CheckpointError(
            f"checkpoint {path}: {side} was trained on other base weights (sha256 {before}, now {now}); "
            f"give those ({side}.init, the model's folder or the program's network), or start anew with --fresh"
        )


def read_counts(values: Any, *names: str) -> dict[str, int]:
    """Read these counters. Raises `ValueError` unless they are integers in [0, 2^48)."""
    counts = {name: values[name] for name in names}
    if any(type(count) is not int or not 0 <= count < 1 << 48 for count in counts.values()):
        raise ValueError(f"{counts}")
    return counts
