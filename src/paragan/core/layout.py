"""Layout of a tensor over ranks: the box that each rank stores; sharded tensors, and named ones in files."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorLayout:
    """The box of a tensor that is on a rank.

    shape: of the whole tensor. offset, length: of the box, per axis. stage: the pipeline stage that
    has the tensor; None where the network is not cut into stages.
    """

    shape: Shape
    offset: Shape
    length: Shape
    stage: int | None = None

    @classmethod
    def whole(cls, shape: Sequence[int]) -> TensorLayout:
        """Return the layout of a tensor that is not cut."""
        return cls(tuple(shape), (0,) * len(shape), tuple(shape))

    @classmethod
    def rows(cls, shape: Sequence[int], index: int, num_boxes: int) -> TensorLayout:
        """Return box `index` of `num_boxes` along axis 0, cut as `torch.chunk` and FSDP2 cut.

        All but the last have ceil(n / num_boxes) rows; later boxes may be empty. Scalars are not cut.
        """
        whole = cls.whole(shape)
        if not whole.shape:
            return whole
        size = -(-shape[0] // num_boxes)
        start = min(index * size, shape[0])
        stop = min(start + size, shape[0])
        length = (stop - start, *whole.shape[1:])
        return replace(whole, offset=(start, *whole.offset[1:]), length=length)

    @property
    def is_whole(self) -> bool:
        """Whether the box is the whole tensor."""
        return self.length == self.shape

    @property
    def is_empty(self) -> bool:
        """Whether the box has no elements."""
        return 0 in self.length

    def cut(self, whole: Tensor) -> Tensor:
        """Return a view of the box in the whole tensor."""
        return whole if self.is_whole else whole[self.within(TensorLayout.whole(self.shape))]

    def within(self, outer: TensorLayout) -> tuple[slice, ...]:
        """Return the slices of a tensor with the layout `outer` that hold this box."""
        starts = [inner - whole for inner, whole in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(start, start + n) for start, n in zip(starts, self.length, strict=True))

    def overlap(self, other: TensorLayout) -> TensorLayout | None:
        """Return the intersection with another box of the same tensor, or None if it is empty."""
        axes = zip(self.offset, self.length, other.offset, other.length, strict=True)
        spans = [(max(a, b), min(a + num_a, b + num_b)) for a, num_a, b, num_b in axes]
        if any(start >= stop for start, stop in spans):
            return None
        offset = tuple(start for start, _ in spans)
        length = tuple(stop - start for start, stop in spans)
        return replace(self, offset=offset, length=length)


Layout = Mapping[str, TensorLayout]
"""The boxes of a network's tensors on one rank, by name."""


# Boxes inside of a tensor that do not overlap fill it if they have as many elements as it has. Sorted along the axis
# with the most cuts, a box is compared with its neighbours alone: a thousand ranks have half a million pairs.
def describe_gaps(boxes: Sequence[TensorLayout]) -> str:
    """Return why these boxes do not make up one tensor; empty if they do."""
    shape = boxes[0].shape
    if not all(box.shape == shape and _is_inside(box) for box in boxes):
        return "pieces do not fit together"
    if not shape:
        return "pieces overlap" if len(boxes) > 1 else ""
    axis = max(range(len(shape)), key=lambda axis: len({box.offset[axis] for box in boxes}))
    ordered = sorted(boxes, key=lambda box: box.offset[axis])
    for number, box in enumerate(ordered, start=1):
        for later in ordered[number:]:
            if later.offset[axis] >= box.offset[axis] + box.length[axis]:
                break
            if box.overlap(later) is not None:
                return "pieces overlap"
    return "" if sum(prod(box.length) for box in boxes) == prod(shape) else "pieces are missing"


def _is_inside(box: TensorLayout) -> bool:
    if not len(box.shape) == len(box.offset) == len(box.length):
        return False
    axes = zip(box.offset, box.length, box.shape, strict=True)
    return all(0 <= start <= start + length <= size for start, length, size in axes)


if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: object) -> TypeGuard[DTensor]:
    """Return whether a tensor is sharded over ranks."""
    # Only what has imported this module of torch can have made one; the import takes 0.7 s, for sympy.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a sharded tensor, a view; any other tensor unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def layout_of(tensor: Tensor) -> TensorLayout:
    """Return this rank's layout of a tensor, sharded on any mesh or whole."""
    if not is_sharded(tensor):
        return TensorLayout.whole(tensor.shape)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    # torch's own rule, also for uneven shards and nested meshes, so that both agree
    length, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return TensorLayout(tuple(tensor.shape), tuple(offset), tuple(length))


@torch.no_grad()
def copy_full(target: Tensor, full: Tensor) -> None:
    """Copy a full tensor, equal on every rank, into a sharded or full one; no communication."""
    local_shard(target).copy_(layout_of(target).cut(full))


def gather_full(tensor: Tensor) -> Tensor:
    """Return the full tensor, on every rank. Collective: every rank must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def optimizer_weights(optimizer: Any) -> dict[str, Tensor]:
    """Return the tensors that an optimiser steps: parameters, float32 copies, or local shards.

    Their order is that of its groups, which must have `param_names`, and of torch's state. Names, because
    another strategy, or another number of ranks, has other tensors in another order.
    """
    weights: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        weights |= zip(group["param_names"], group["params"], strict=True)
    return weights


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
        value = weights[name].detach().cpu().contiguous()  # the memory format of a device must not count
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
        shapes = {**self.shapes, **other.shapes}
        return StoredTensors(shapes, lambda name, box: (other if name in other else self).read(name, box))

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
