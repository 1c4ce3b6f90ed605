"""Reader of files with weights of any origin: safetensors, a box at a time, and the tensors of `torch.save`."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from paragan.checkpoint.layouts.pix2pix import is_translation
from paragan.checkpoint.reader import UNREADABLE, assemble, file_sha256
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file
from paragan.core.layout import StoredTensors, TensorLayout

_PICKLED = (b"PK\x03\x04", b"\x80")  # a zip file and a plain pickle: the formats of `torch.save`
_MAX_DEPTH = 3  # of maps in maps
_MAX_TENSORS = 100_000
_ADVICE = "give a file of torch.save(net.state_dict(), …), or of safetensors"


class _Ignored:
    """Stands for a number of numpy, such as a best score, and for its type: only tensors are read."""

    def __init__(self, *_: object) -> None:
        """Take what would make the object."""

    def __setstate__(self, _: object) -> None:
        """Take what would fill the object."""


_NUMBERS = ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar", "numpy.dtype")
_SAFE: Sequence[tuple[Callable[..., object], str]] = [(_Ignored, name) for name in _NUMBERS]


def open_weights(paths: Sequence[Path], key: str) -> StoredTensors:
    """Open the tensors of files of safetensors, or of `torch.save`, each of which holds other tensors.

    Two files of a network that CycleGAN has twice have `1/` and `2/` in front of their names. key: setting
    that names the files, for messages. Raises `CheckpointError` for another file, and for a tensor in two.
    """
    parts = [_open(path, key) for path in paths]
    first, *others = parts
    if len(parts) == 2 and first.shapes.keys() == others[0].shapes.keys() and is_translation(frozenset(first)):
        return _below(first, "1/").joined(_below(others[0], "2/"))
    weights = first
    for path, part in zip(paths[1:], others, strict=True):
        for name in part:
            if name in weights:
                raise CheckpointError(f"{key}: {name} is in {path} and in a file before it; give one of the two files")
        weights = weights.joined(part)
    return weights


def is_torch_file(path: Path) -> bool:
    """Return whether a file begins as those of `torch.save`: a zip file, or a plain pickle."""
    with open_regular_file(path) as file:  # safetensors and torch would block on a pipe
        start = file.read(9)
    # A header of safetensors begins after its length, whose first byte may be that of a pickle.
    return start.startswith(_PICKLED) and start[8:] != b"{"


def sha256_of_files(paths: Sequence[Path]) -> str:
    """Return the sha256 of a file, or that of the sums of several."""
    sums = [file_sha256(path) for path in paths]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def _below(stored: StoredTensors, lead: str) -> StoredTensors:
    shapes = {f"{lead}{name}": shape for name, shape in stored.shapes.items()}
    return StoredTensors(shapes, lambda name, box: stored.read(name.removeprefix(lead), box))


def _open(path: Path, key: str) -> StoredTensors:
    try:
        if is_torch_file(path):
            return StoredTensors.of(_read_torch_file(path, key))
        opened: Any = safe_open(path, "pt")
        names = opened.keys()
        boxes = {name: TensorLayout.whole(opened.get_slice(name).get_shape()) for name in names}
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:100]
        raise CheckpointError(f"{key} {path}: not a safetensors file ({text}); give one, or a run folder") from None

    def read(name: str, wanted: TensorLayout) -> Tensor:
        try:
            return assemble(name, wanted, [(boxes[name], opened)])
        except UNREADABLE as error:
            text = " ".join(str(error).split())[:100]
            raise CheckpointError(f"{key} {path}: {name} cannot be read ({text})") from None

    return StoredTensors({name: box.shape for name, box in boxes.items()}, read)


def _read_torch_file(path: Path, key: str) -> dict[str, Tensor]:
    """Return the tensors of nested maps by dotted names: of `state_dict` if there is one, never of an optimizer.

    Those of a zip file are mapped; numbers of numpy are not made. key: setting, for messages. Raises `CheckpointError`
    for a file with more than tensors, numbers, text, lists and maps, which could run code, and for a damaged one.
    """
    try:
        is_zip = zipfile.is_zipfile(path)
        if is_zip and any(member.compress_type for member in zipfile.ZipFile(path).infolist()):
            raise ValueError("compressed, which torch never writes")  # it could have any size in memory
        with torch.serialization.safe_globals([*_SAFE]):
            content: object = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # the reader of a damaged file raises anything
        text = " ".join(str(error).split())
        if "Weights only load failed" in text:
            reason = "holds Python objects, which can run code"
        else:  # torch's reader of zip files names its own source
            reason = "is damaged" if isinstance(error, RuntimeError) else f"cannot be read ({text[:100]})"
        raise CheckpointError(f"{key} {path} {reason}; {_ADVICE}") from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    tensors: dict[str, Tensor] = {}
    for name, value in _named(content, "", _MAX_DEPTH, set()):
        if not _is_plain(value) or len(tensors) >= _MAX_TENSORS:
            raise CheckpointError(f"{key} {path}: {name[:80]} is not a plain tensor, or one too many; {_ADVICE}")
        tensors[name] = value.detach()
    if not tensors:
        raise CheckpointError(f"{key} {path} holds no tensors with names; {_ADVICE}")
    return tensors


def _named(content: object, prefix: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, Tensor):
        yield prefix.removesuffix("."), content
    elif isinstance(content, Mapping) and depth and id(content) not in seen:
        seen.add(id(content))  # a map may be in itself, or a million times in another
        if not content.keys() >= {"state", "param_groups"}:
            for name, value in content.items():
                yield from _named(value, f"{prefix}{name}.", depth - 1, seen)


def _is_plain(value: Tensor) -> bool:
    """Whether it is an ordinary tensor, and not larger than its memory: a copy of it could have any size."""
    if type(value) not in (Tensor, nn.Parameter) or value.layout != torch.strided or value.is_quantized:
        return False
    return value.device.type == "cpu" and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
