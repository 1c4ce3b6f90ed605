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
_DTYPE_OF_NAME = {name: dtype for dtype, name in DTYPES.items()}
_ALIGNMENT = 8  # bytes
_MAX_HEADER_BYTES = 1 << 26
_MAX_AXES = 16
_BODY = "body"  # of metadata: a header of its own


def serialize(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Tensor:
    """As bytes (uint8) on the host: a whole safetensors file."""
    about, size = _layout(tensors)
    text = json.dumps({"__metadata__": metadata, **about}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    found = torch.empty(len(head) + size, dtype=torch.uint8)
    found[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
    _fill(found[len(head) :], tensors, about)
    return found


def serialize_split(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], device: torch.device
) -> tuple[Tensor, Tensor]:
    """A file on the host, and beside it a body of what lies on the device, there: nothing passes from one to the other.

    Few numbers of an optimiser lie on the host, and have to where they are read: its steps.
    """
    there = {name: value for name, value in tensors.items() if value.device == device}
    about, size = _layout(there)
    body = torch.empty(size, dtype=torch.uint8, device=device)
    _fill(body, there, about)
    rest = {name: value for name, value in tensors.items() if name not in there}
    return serialize(rest, {**metadata, _BODY: json.dumps(about)}), body


def _layout(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int]:
    """The header's entries, and how many bytes there are."""
    about, end = dict[str, Any](), 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name)):  # aligned to its own size
        value, begin = tensors[name], end
        end += value.numel() * value.element_size()
        about[name] = {"dtype": DTYPES[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
    return about, end


def _fill(data: Tensor, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    for name, entry in about.items():
        data[slice(*entry["data_offsets"])] = tensors[name].contiguous().reshape(-1).view(torch.uint8)


def deserialize(data: Tensor, body: Tensor | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `written`, or with a body `parted`, made of tensors, as views of both, and the metadata.

    `ValueError`, `KeyError`, `TypeError` or `RecursionError` for anything else: nothing overlaps, nothing is left over.
    """
    length = int.from_bytes(data[:8].numpy().tobytes(), "little")
    if not 0 < length <= min(len(data) - 8, _MAX_HEADER_BYTES) or length % _ALIGNMENT:
        raise ValueError(f"a header of {length} bytes in {len(data)}")
    header = dict(json.loads(data[8 : 8 + length].numpy().tobytes()))
    metadata = dict(header.pop("__metadata__"))
    tensors = _views(header, data[8 + length :], len(data))
    if body is not None:
        tensors |= _views(dict(json.loads(metadata.pop(_BODY))), body, len(data) + len(body))
    return tensors, metadata


def _views(header: Mapping[str, Any], body: Tensor, most_axis: int) -> dict[str, Tensor]:
    if body.data_ptr() % _ALIGNMENT or body.storage_offset() % _ALIGNMENT:
        body = body.clone()  # it came behind something else
    num_bytes, end = len(body), 0
    runs: list[tuple[torch.dtype, int, list[int]]] = []  # tensors of one kind behind one another: where, and numbers
    for name, about in header.items():
        dtype, shape = _DTYPE_OF_NAME[about["dtype"]], about["shape"]
        if len(shape) > _MAX_AXES or any(type(axis) is not int or not 0 <= axis <= most_axis for axis in shape):
            raise ValueError(f"{name} of shape {shape}"[:200])
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        if about["data_offsets"] != [begin, end] or end > num_bytes or begin % dtype.itemsize:
            raise ValueError(f"{name} at {about['data_offsets']}, expected {[begin, end]} of {num_bytes}"[:200])
        if not runs or runs[-1][0] is not dtype:
            runs.append((dtype, begin, []))
        runs[-1][2].append(math.prod(shape))
    if end != num_bytes:
        raise ValueError(f"{num_bytes - end} bytes after the last tensor")
    flat = (
        part
        for dtype, begin, counts in runs
        for part in body[begin : begin + sum(counts) * dtype.itemsize].view(dtype).split(counts)
    )
    return {name: part.view(about["shape"]) for (name, about), part in zip(header.items(), flat, strict=True)}
