"""Reader of safetensors files with weights of any origin, a box at a time. Nothing is unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from paragan.checkpoint.reader import UNREADABLE, assemble, file_sha256
from paragan.core.errors import CheckpointError
from paragan.core.files import open_regular_file
from paragan.core.layout import StoredTensors, TensorLayout

_PICKLED = (b"PK\x03\x04", b"\x80")  # a zip file and a plain pickle: the formats of `torch.save`


def open_weights(paths: Sequence[Path], key: str) -> StoredTensors:
    """Open the tensors of safetensors files, each of which holds other tensors.

    key: setting that names the files, for messages. Raises `CheckpointError` for another file, with
    the conversion of one that `torch.save` wrote, and for a tensor in two files.
    """
    files: dict[str, tuple[Path, Any, TensorLayout]] = {}
    for path in paths:
        opened = _open(path, key)
        for name in opened.keys():  # noqa: SIM118 no mapping
            if name in files:
                raise CheckpointError(f"{key}: {name} is in {files[name][0]} and in {path}; give one of the two files")
            files[name] = path, opened, TensorLayout.whole(opened.get_slice(name).get_shape())

    def read(name: str, wanted: TensorLayout) -> Tensor:
        path, opened, whole = files[name]
        try:
            return assemble(name, wanted, [(whole, opened)])
        except UNREADABLE as error:
            text = " ".join(str(error).split())[:100]
            raise CheckpointError(f"{key} {path}: {name} cannot be read ({text})") from None

    return StoredTensors({name: whole.shape for name, (_, _, whole) in files.items()}, read)


def sha256_of_files(paths: Sequence[Path]) -> str:
    """Return the sha256 of a file, or that of the sums of several."""
    sums = [file_sha256(path) for path in paths]
    return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()


def _open(path: Path, key: str) -> Any:
    try:
        with open_regular_file(path) as file:  # safetensors would block on a pipe
            start = file.read(9)
        # A header of safetensors begins after its length, whose first byte may be that of a pickle.
        if start.startswith(_PICKLED) and start[8:] != b"{":
            raise CheckpointError(f"{key} {path} is pickled, which can run code, and is never opened; {_convert(path)}")
        return safe_open(path, "pt")
    except UNREADABLE as error:
        text = " ".join(str(error).split())[:100]
        raise CheckpointError(f"{key} {path}: not a safetensors file ({text}); give one, or a run folder") from None


def _convert(path: Path) -> str:
    """Return how to convert a file of `torch.save`; with `weights_only` no code of the file runs."""
    return (
        'convert it: python -c "import torch, safetensors.torch as s; '
        f"w = torch.load('{path}', map_location='cpu', weights_only=True); w = w.get('state_dict', w); "
        f"s.save_file({{k: v.clone().contiguous() for k, v in w.items()}}, '{path.with_suffix('.safetensors')}')\""
    )
