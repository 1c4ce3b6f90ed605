"""One file that holds a generator and everything needed to use it: weights as safetensors, the rest as its metadata."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from paragan import __version__
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file, write_bytes
from paragan.export.sampler import GeneratorInfo

FORMAT = "paragan generator 1"
_MOST_BYTES = 16 << 20  # of the header: names of tensors and metadata


@dataclass(frozen=True)
class GeneratorFile:
    """config: JSON. score: as `score.json` has it; empty where the run was never scored."""

    weights: dict[str, Tensor]
    config: str
    info: GeneratorInfo
    score: Mapping[str, Any]


def write(path: Path, exported: GeneratorFile) -> None:
    """The file; every value of its metadata is text."""
    facts = exported.info
    metadata = {
        "format": FORMAT,
        "config": exported.config,
        "shape": json.dumps(facts.shape),
        "class_names": json.dumps(facts.class_names),
        "step": str(facts.step),
        "kimg": str(facts.images / 1000),
        "images": str(facts.images),
        "sha256": fingerprint(exported.weights),
        "score": json.dumps(exported.score),
        "paragan": __version__,
    }
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in exported.weights.items()}
    try:
        write_bytes(path, save(weights, metadata))
    except (SafetensorError, OSError) as error:
        reason = "no space left on the device" if "space left" in str(error) else str(error)
        raise CheckpointError(f"{path.parent}: cannot be written ({reason}); give another --out") from None


def read(path: Path) -> GeneratorFile:
    """What `write` wrote; `CheckpointError` for any other or damaged file. Nothing in it is run."""
    _refuse_a_long_header(path)
    try:
        with safe_open(path, "pt") as file:
            told = file.metadata() or {}
            if told.get("format") != FORMAT:
                raise _read_error(path, f"format {str(told.get('format'))[:40]!r}", repr(FORMAT))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError) as error:
        raise _read_error(path, f"a file that is not whole safetensors ({str(error).splitlines()[0][:100]})") from None
    if fingerprint(weights) != told.get("sha256"):
        raise _read_error(path, "weights whose sha256 is not the one in the file", "the weights that were exported")
    try:
        facts = GeneratorInfo.read(*(json.loads(told[key]) for key in ("shape", "class_names", "step", "images")))
        return GeneratorFile(weights, told["config"], facts, dict(json.loads(told["score"])))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise _read_error(path, f"metadata that lacks or garbles something ({str(error)[:60]})") from None


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """sha256 of all tensors: names, types, shapes and bytes, by name."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _refuse_a_long_header(path: Path) -> None:
    """A safetensors file starts with the length of its header, in eight bytes."""
    try:
        with open_regular_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _read_error(path, f"a file that cannot be read ({error.strerror})") from None
    if not 0 < length <= min(_MOST_BYTES, size - 8):
        raise _read_error(path, "a file that is not safetensors, or whose header is cut short or too long")


def _read_error(path: Path, found: str, expected: str = "") -> CheckpointError:
    expected = expected or f"a file written by `{program_command()} export`"
    return CheckpointError(f"{path}: found {found}, expected {expected}, or a run folder; export the run again")
