"""Named tensors as one message: the safetensors format, which holds nothing that could run.

Its own library copies every tensor four times on the way to bytes and three times back; this once, and not at all.
Source: the format's description at https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

DTYPES = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"},
    torch.bool: "BOOL",
}
_KINDS = {name: dtype for dtype, name in DTYPES.items()}
_ALIGNED = 8  # bytes
_MOST_HEADER = 1 << 26
_MOST_AXES = 16


def written(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Tensor:
    """As bytes (uint8): a whole safetensors file."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # each is aligned to its own size
    header: dict[str, Any] = {"__metadata__": metadata}
    places, end = dict[str, slice](), 0
    for name in names:
        value = tensors[name]
        places[name] = slice(end, end := end + value.numel() * value.element_size())
        about = {"dtype": DTYPES[value.dtype], "shape": list(value.shape)}
        header[name] = {**about, "data_offsets": [places[name].start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    head = len(text).to_bytes(8, "little") + text
    found = torch.empty(len(head) + end, dtype=torch.uint8)
    found[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    data = found[len(head) :]
    for name, place in places.items():
        data[place] = tensors[name].contiguous().reshape(-1).view(torch.uint8)
    return found


def read(data: Tensor) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `written` made of tensors, as views of `data`, and the metadata. `ValueError`, `KeyError`, `TypeError` or
    `RecursionError` for anything else: nothing overlaps, nothing is left over.
    """
    length = int.from_bytes(data[:8].numpy().tobytes(), "little")
    if not 0 < length <= min(len(data) - 8, _MOST_HEADER) or length % _ALIGNED:
        raise ValueError(f"a header of {length} bytes in {len(data)}")
    header = dict(json.loads(data[8 : 8 + length].numpy().tobytes()))
    metadata, body = header.pop("__metadata__"), data[8 + length :]
    if body.data_ptr() % _ALIGNED or body.storage_offset() % _ALIGNED:
        body = body.clone()  # it came behind something else
    tensors, end = dict[str, Tensor](), 0
    for name, about in header.items():
        dtype, shape = _KINDS[about["dtype"]], about["shape"]
        if len(shape) > _MOST_AXES or any(type(axis) is not int or not 0 <= axis <= len(data) for axis in shape):
            raise ValueError(f"{name} of shape {shape}"[:200])
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        if about["data_offsets"] != [begin, end] or end > len(body) or begin % dtype.itemsize:
            raise ValueError(f"{name} at {about['data_offsets']}, expected {[begin, end]} of {len(body)}"[:200])
        tensors[name] = body[begin:end].view(dtype).view(shape)
    if end != len(body):
        raise ValueError(f"{len(body) - end} bytes after the last tensor")
    return tensors, metadata
