"""File format of an exported generator: weights as safetensors, everything else as its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from paragan import __version__
from paragan.core.command import program_command
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file, write_bytes
from paragan.core.layout import fingerprint

FORMAT = "paragan generator 1"
_MAX_HEADER_BYTES = 16 << 20  # of the header: names of tensors and metadata
_MAX_CLASSES = 100_000
_MAX_AXES = 8


@dataclass(frozen=True, kw_only=True)
class GeneratorInfo:
    """Facts about a generator that its config lacks.

    shape: of a sample, (C, H, W) of images; an axis of -1 has any length. images: real samples in
    training. class_sizes: by which labels are drawn, as of `Prior`. condition_channels: of the images
    that samples are generated from; None without them.
    """

    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    step: int
    images: int
    class_sizes: tuple[int, ...] = ()
    condition_channels: int | None = None

    @property
    def condition_shape(self) -> tuple[int, ...]:
        """Shape of the image that a sample is generated from."""
        return (self.condition_channels or self.shape[0], *self.shape[1:])

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> GeneratorInfo:
        """Validate values of a file. Raises `ValueError` for values that no run writes, `KeyError` without one."""
        shape, class_names, step, images = (values[key] for key in ("shape", "class_names", "step", "images"))
        channels = values.get("condition_channels")
        axes = tuple(shape) if isinstance(shape, (list, tuple)) and 0 < len(shape) <= _MAX_AXES else ()
        positive = [axis for axis in axes if axis != -1] + [step + 1, images + 1]  # both may be 0
        if channels is not None:
            positive.append(channels)
        if not axes or any(type(number) is not int or not 0 < number < 1 << 48 for number in positive):
            raise ValueError(f"shape {shape!r}, step {step!r}, images {images!r}"[:200])
        if len(class_names) > _MAX_CLASSES or not all(isinstance(name, str) for name in class_names):
            raise ValueError("class_names")
        names = tuple(class_names)
        sizes = _class_sizes(values.get("class_sizes", ()), len(names))
        info = cls(shape=axes, class_names=names, step=step, images=images)
        return replace(info, class_sizes=sizes, condition_channels=channels)


def _class_sizes(values: Any, num_classes: int) -> tuple[int, ...]:
    sizes = tuple(values)
    is_valid = all(type(size) is int and size >= 0 for size in sizes) and 0 < sum(sizes) < 1 << 48
    if sizes and not (is_valid and len(sizes) == num_classes):
        raise ValueError("class_sizes")
    return sizes


@dataclass(frozen=True, kw_only=True)
class GeneratorFile:
    """Content of an exported file.

    config: JSON. score: as in `score.json`; empty if the run was never scored. code: sha256 of the .py
    files outside paragan that the config names, by their names; empty if unknown.
    """

    weights: dict[str, Tensor]
    config: str
    info: GeneratorInfo
    score: Mapping[str, Any]
    code: Mapping[str, str] = field(default_factory=dict)


def write(path: Path, exported: GeneratorFile) -> None:
    """Write the file; every value of its metadata is text."""
    info = exported.info
    metadata = {
        "format": FORMAT,
        "config": exported.config,
        "shape": json.dumps(info.shape),
        "class_names": json.dumps(info.class_names),
        "class_sizes": json.dumps(info.class_sizes),
        "step": str(info.step),
        "kimg": str(info.images / 1000),
        "images": str(info.images),
        "condition_channels": json.dumps(info.condition_channels),
        "sha256": fingerprint(exported.weights),
        "score": json.dumps(exported.score),
        "code": json.dumps(exported.code),
        "paragan": __version__,
    }
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in exported.weights.items()}
    try:
        write_bytes(path, save(weights, metadata))
    except (SafetensorError, OSError) as error:
        reason = "no space left on the device" if "space left" in str(error) else str(error)
        raise CheckpointError(f"{path.parent}: cannot be written ({reason}); give another --out") from None


def is_foreign(path: Path) -> bool:
    """Return whether a file of safetensors is of another program than `write`; False for a damaged one."""
    try:
        _check_header(path)
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("format") != FORMAT
    except (CheckpointError, SafetensorError, OSError, ValueError):
        return False


def read(path: Path) -> GeneratorFile:
    """Read and verify a file of `write`. Raises `CheckpointError` for another or damaged file."""
    _check_header(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise _read_error(path, f"its format is {str(metadata.get('format'))[:40]!r}, not {FORMAT!r}")
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 no mapping
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError) as error:
        raise _read_error(path, f"not a complete safetensors file ({str(error).splitlines()[0][:100]})") from None
    if fingerprint(weights) != metadata.get("sha256"):
        raise _read_error(path, "the sha256 of the weights is not the one in the file")
    try:
        keys = metadata.keys() & {field.name for field in fields(GeneratorInfo)}
        info = GeneratorInfo.read({key: json.loads(metadata[key]) for key in keys})
        score, code = (dict(json.loads(metadata.get(key, "{}"))) for key in ("score", "code"))
        code = {name: sha256 for name, sha256 in code.items() if isinstance(sha256, str)}
        return GeneratorFile(weights=weights, config=metadata["config"], info=info, score=score, code=code)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise _read_error(path, f"its metadata is incomplete or invalid ({str(error)[:60]})") from None


def _check_header(path: Path) -> None:
    """Check the length of the header, which is in the first eight bytes of a safetensors file."""
    try:
        with open_regular_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _read_error(path, f"cannot be read ({error.strerror})") from None
    if not 0 < length <= min(_MAX_HEADER_BYTES, size - 8):
        raise _read_error(path, "not a safetensors file, or its header is truncated or too long")


def _read_error(path: Path, reason: str) -> CheckpointError:
    command = f"{program_command()} export"
    return CheckpointError(f"{path}: {reason}; pass a run folder, or a file written by `{command}`")
