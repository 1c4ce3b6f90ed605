"""Named tensors on their way to and from files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paragan.core.layout import Layout, Shape, TensorLayout


@dataclass(frozen=True)
class Pieces:
    """Named tensors on this rank. layout: of those that are cut; the others are whole."""

    tensors: Mapping[str, Tensor]
    layout: Layout = field(default_factory=dict)

    def boxes(self) -> dict[str, TensorLayout]:
        """Return the layout of every tensor, without empty pieces."""
        boxes = {name: self.layout.get(name) or TensorLayout.whole(t.shape) for name, t in self.tensors.items()}
        return {name: box for name, box in boxes.items() if box.is_whole or not box.is_empty}


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Return the shape of each tensor, by name."""
    return {name: tuple(value.shape) for name, value in tensors.items()}


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """Compute the sha256 of all tensors: names, dtypes, shapes and bytes, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class StoredTensors(Mapping[str, Tensor]):
    """Whole tensors by name, each read when it is accessed. read_box: reads one box."""

    def __init__(self, shapes: Mapping[str, Shape], read_box: Callable[[str, TensorLayout], Tensor]) -> None:
        self.shapes = dict(shapes)
        self._read_box = read_box

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> StoredTensors:
        """Wrap tensors that are in memory already."""
        return cls(shapes_of(tensors), lambda name, box: box.cut(tensors[name]))

    def joined(self, other: StoredTensors) -> StoredTensors:
        """Return the tensors of both; a name in both is that of the other."""
        return StoredTensors(
            {**self.shapes, **other.shapes}, lambda k, box: (other if k in other else self).read(k, box)
        )

    def under(self, prefix: str) -> StoredTensors:
        """Return the tensors whose names begin with a prefix, named without it."""
        shapes = {k[len(prefix) :]: shape for k, shape in self.shapes.items() if k.startswith(prefix)}
        return StoredTensors(shapes, lambda name, box: self.read(prefix + name, box))

    def read(self, name: str, box: TensorLayout) -> Tensor:
        """Read only one box of a tensor."""
        if name not in self.shapes:
            raise KeyError(name)
        return self._read_box(name, box)

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name, TensorLayout.whole(self.shapes[name]))

    def __contains__(self, name: Any) -> bool:  # that of Mapping reads the tensor
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)
