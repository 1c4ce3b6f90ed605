"""Named tensors on their way to files and back: what one rank holds of them, and whole ones that are read singly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.core.window import Window

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """What this rank holds of a group of named tensors.

    cut: the names of those that are pieces, cut by `window`; the others are whole, and equal on all ranks. writes:
    whether this rank saves them, of those that hold the same.
    """

    tensors: Mapping[str, Tensor]
    cut: frozenset[str] = frozenset()
    window: Window = Window()
    writes: bool = True

    @property
    def mine(self) -> dict[str, Tensor]:
        """What this rank has to save: its pieces, and on the first piece what is whole."""
        return {name: value for name, value in self.tensors.items() if name in self.cut or self.window.index == 0}


class StoredTensors(Mapping[str, Tensor]):
    """Whole tensors by name, each read when it is accessed. shapes: known without reading."""

    def __init__(self, shapes: Mapping[str, Shape], read: Callable[[str], Tensor]) -> None:
        self.shapes, self._read = dict(shapes), read

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> StoredTensors:
        """Tensors that are in memory already."""
        return cls({name: tuple(value.shape) for name, value in tensors.items()}, tensors.__getitem__)

    def under(self, prefix: str) -> StoredTensors:
        """Those whose names begin so, without it."""
        shapes = {name[len(prefix) :]: shape for name, shape in self.shapes.items() if name.startswith(prefix)}
        return StoredTensors(shapes, lambda name: self[prefix + name])

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.shapes:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: Any) -> bool:  # Mapping's own would read it
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)
