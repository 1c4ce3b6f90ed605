"""Checkpoints that are whole or absent: safetensors + JSON under a sha256 manifest.

A checkpoint is written into a temporary folder, synced, given its manifest last, and renamed into place. A reader
takes the newest folder whose manifest and checksums hold. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from paragan.core.errors import CheckpointError

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """groups: named tensors by file; values: plain numbers and strings."""

    step: int
    groups: Mapping[str, Mapping[str, Tensor]]
    values: Mapping[str, Any]
    path: Path | None = None


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run. `say` receives a line when a damaged one is passed over."""

    folder: Path
    keep: int = 3
    say: Callable[[str], None] = print

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write one and drop all but the newest `keep`.

        On failure the older ones stand and nothing half-written remains.
        """
        final = self.folder / f"step-{checkpoint.step:09d}"
        temporary = self.folder / f".tmp-{final.name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            _write(temporary, checkpoint)
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            _sync(self.folder)
        except (OSError, SafetensorError, RuntimeError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(
                f"checkpoint of step {checkpoint.step} was not written to {self.folder}: {_reason(error)}; "
                "earlier checkpoints stand: make room and give the same command again"
            ) from None
        for later in self.paths():  # damaged ones that a resume passed over: they no longer count
            if later.name > final.name:
                evidence = later.with_name(f"damaged-{later.name}")
                shutil.rmtree(evidence, ignore_errors=True)  # an earlier one of this step
                later.rename(evidence)
        for old in self.paths()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def paths(self) -> list[Path]:
        """Finished checkpoints, oldest first."""
        return sorted(p for p in self.folder.glob("step-*") if p.is_dir())

    def newest(self) -> Checkpoint | None:
        """The newest undamaged checkpoint; None if there never was one."""
        for path in reversed(self.paths()):
            try:
                return read(path)
            except CheckpointError as error:
                self.say(f"{error}; trying the one before")
        if self.paths():
            raise CheckpointError(f"{self.folder}: no undamaged checkpoint is left; start anew with --fresh")
        return None


def read(path: Path) -> Checkpoint:
    """One checkpoint, verified against its manifest; `CheckpointError` names the first file that does not hold."""
    manifest = json_of(path / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint {path}: found format {manifest.get('format')!r}, expected {FORMAT}; "
            "use the paragan that wrote it"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or "state.json" not in files:
        raise CheckpointError(f"checkpoint {path}: the manifest lists no state.json")
    for name, sha256 in files.items():
        if Path(name).name != name or not (path / name).is_file():
            raise CheckpointError(f"checkpoint {path}: {name} is missing")
        if sha256_of(path / name) != sha256:
            raise CheckpointError(f"checkpoint {path}: {name} is damaged (its sha256 differs from the manifest)")
    state = json_of(path / "state.json")
    if not isinstance(state.get("step"), int) or not isinstance(state.get("values"), dict):
        raise CheckpointError(f"checkpoint {path}: state.json lacks the step or its values")
    groups = {Path(name).stem: _tensors(path / name) for name in files if name != "state.json"}
    return Checkpoint(state["step"], groups, state["values"], path)


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    for name, tensors in checkpoint.groups.items():
        save_file(dict(tensors), folder / f"{name}.safetensors")
    state = {"step": checkpoint.step, "values": dict(checkpoint.values)}
    (folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
    for path in folder.iterdir():
        _sync(path)
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": files}, indent=1), encoding="utf-8")
    _sync(folder / MANIFEST)
    _sync(folder)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError):
        raise CheckpointError(
            f"checkpoint {path}: not a safetensors file; pickled weights are never read: convert them first"
        ) from None


def json_of(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a checkpoint."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CheckpointError(f"checkpoint {path.parent}: {path.name} is missing or not JSON")
    return found


def sha256_of(path: Path) -> str:
    """Of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return "no space left on the device" if "space left" in text or "code: 28" in text else text
