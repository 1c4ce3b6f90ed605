"""Layout of a tensor over ranks: the box that each rank stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

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
    def rows(cls, shape: Sequence[int], index: int, of: int) -> TensorLayout:
        """Return box `index` of `of` along axis 0, cut as `torch.chunk` and FSDP2 cut.

        All but the last have ceil(n / of) rows; later boxes may be empty. Scalars are not cut.
        """
        whole = cls.whole(shape)
        if not whole.shape:
            return whole
        size = -(-shape[0] // of)
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
