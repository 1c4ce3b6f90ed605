"""Named tensors as one message in the safetensors format, which contains no executable code.

The safetensors library copies every tensor four times when writing and three times when reading;
this module copies it once when writing and never when reading. Source:
https://github.com/huggingface/safetensors (format)
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
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"},
    **{torch.uint8: "U8", torch.bool: "BOOL"},
}
_DTYPE_OF_NAME = {name: dtype for dtype, name in DTYPES.items()}
_ALIGNMENT = 8  # bytes
_MAX_HEADER_BYTES = 1 << 26
_MAX_AXES = 16


def serialize(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Tensor:
    """Serialise tensors to a complete safetensors file, as bytes (uint8) on the host."""
    entries, size = _layout(tensors)
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    data = torch.empty(len(head) + size, dtype=torch.uint8)
    data[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    _fill(data[len(head) :], tensors, entries)
    return data


def _layout(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
    """Return header entries, and the number of bytes of all tensors."""
    entries: dict[str, Any] = {}
    end = 0
    # largest elements first: each tensor is aligned to its element size
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):
        value = tensors[name]
        begin = end
        end += value.numel() * value.element_size()
        about = {"dtype": DTYPES[value.dtype], "shape": list(value.shape)}
        entries[name] = about | {"data_offsets": [begin, end]}
    return entries, end


def _fill(data: Tensor, tensors: Mapping[str, Tensor], entries: Mapping[str, Any]) -> None:
    for name, entry in entries.items():
        values = tensors[name].contiguous().reshape(-1)
        data[slice(*entry["data_offsets"])] = values.view(torch.uint8)


def deserialize(data: Tensor) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Deserialise the bytes of `serialize` into views of them, and the metadata.

    Raises `ValueError`, `KeyError`, `TypeError` or `RecursionError` if the data is invalid; tensors
    must neither overlap nor leave gaps.
    """
    length = int.from_bytes(data[:8].numpy().tobytes(), "little")
    if not 0 < length <= min(len(data) - 8, _MAX_HEADER_BYTES) or length % _ALIGNMENT:
        raise ValueError(f"invalid header length {length} in {len(data)} bytes")
    header = dict(json.loads(data[8 : 8 + length].numpy().tobytes()))
    metadata = dict(header.pop("__metadata__"))
    return _views(header, data[8 + length :], len(data)), metadata


def _views(header: Mapping[str, Any], body: Tensor, most_axis: int) -> dict[str, Tensor]:
    if body.data_ptr() % _ALIGNMENT or body.storage_offset() % _ALIGNMENT:
        body = body.clone()  # a slice of a larger message may be misaligned
    num_bytes = len(body)
    end = 0
    # contiguous tensors of a dtype: offset, numbers of elements
    runs: list[tuple[torch.dtype, int, list[int]]] = []
    for name, about in header.items():
        dtype = _DTYPE_OF_NAME[about["dtype"]]
        shape = about["shape"]
        if len(shape) > _MAX_AXES or any(type(axis) is not int or not 0 <= axis <= most_axis for axis in shape):
            raise ValueError(f"{name} has an invalid shape {shape}"[:200])
        begin = end
        end += math.prod(shape) * dtype.itemsize
        if about["data_offsets"] != [begin, end] or end > num_bytes or begin % dtype.itemsize:
            problem = f"{name} has data_offsets {about['data_offsets']}"
            raise ValueError(f"{problem}, not {[begin, end]} of {num_bytes}"[:200])
        if not runs or runs[-1][0] is not dtype:
            runs.append((dtype, begin, []))
        runs[-1][2].append(math.prod(shape))
    if end != num_bytes:
        raise ValueError(f"{num_bytes - end} bytes after the last tensor")
    flat: list[Tensor] = []
    for dtype, begin, counts in runs:
        flat += body[begin : begin + sum(counts) * dtype.itemsize].view(dtype).split(counts)
    parts = zip(header.items(), flat, strict=True)
    return {name: part.view(about["shape"]) for (name, about), part in parts}
