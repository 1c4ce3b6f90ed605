"""Which part of a tensor is on a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorLayout:
    """The box of a tensor that a rank holds.

    shape: of the whole tensor. offset, length: of the box, per axis. stage: the pipeline stage that owns the tensor;
    None where the network is not cut into stages.
    """

    shape: Shape
    offset: Shape
    length: Shape
    stage: int | None = None

    @classmethod
    def whole(cls, shape: Sequence[int]) -> TensorLayout:
        """The layout of a tensor that is not cut."""
        return cls(tuple(shape), (0,) * len(shape), tuple(shape))

    @classmethod
    def rows(cls, shape: Sequence[int], index: int, of: int) -> TensorLayout:
        """Box `index` of `of` along axis 0, cut as `torch.chunk` and FSDP2 cut: all but the last of ceil(n / of) rows.

        Later boxes may be empty. Tensors without axes are not cut.
        """
        whole = cls.whole(shape)
        if not whole.shape:
            return whole
        size = -(-shape[0] // of)
        start = min(index * size, shape[0])
        stop = min(start + size, shape[0])
        return replace(whole, offset=(start, *whole.offset[1:]), length=(stop - start, *whole.shape[1:]))

    @property
    def is_whole(self) -> bool:
        return self.length == self.shape

    @property
    def is_empty(self) -> bool:
        return 0 in self.length

    @property
    def is_valid(self) -> bool:
        """Whether the box is inside the tensor."""
        if not len(self.shape) == len(self.offset) == len(self.length):
            return False
        axes = zip(self.offset, self.length, self.shape, strict=True)
        return all(start >= 0 and length >= 0 and start + length <= size for start, length, size in axes)

    def cut(self, whole: Tensor) -> Tensor:
        """A view of the box in the whole tensor."""
        return whole if self.is_whole else whole[self.within(TensorLayout.whole(self.shape))]

    def within(self, outer: TensorLayout) -> tuple[slice, ...]:
        """The slices of a tensor with the layout `outer` that hold this box."""
        starts = [mine - theirs for mine, theirs in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(start, start + length) for start, length in zip(starts, self.length, strict=True))

    def overlap(self, other: TensorLayout) -> TensorLayout | None:
        """The box that both have; None if there is none. Both are boxes of one tensor."""
        start = tuple(map(max, self.offset, other.offset))
        stop = map(min, self._stop, other._stop)
        length = tuple(high - low for low, high in zip(start, stop, strict=True))
        return replace(self, offset=start, length=length) if min(length, default=1) > 0 else None

    @property
    def _stop(self) -> Shape:
        return tuple(start + length for start, length in zip(self.offset, self.length, strict=True))


Layout = Mapping[str, TensorLayout]
"""The boxes of a network's tensors on one rank, by name."""


def describe_gaps(boxes: Sequence[TensorLayout]) -> str:
    """Why these boxes do not make up one tensor; empty if they do."""
    shape = boxes[0].shape
    if not all(box.is_valid and box.shape == shape for box in boxes):
        return "pieces do not fit together"
    axes = range(len(shape))
    axis = max(axes, key=lambda axis: len({box.offset[axis] for box in boxes}), default=None)
    if axis is None:
        return "pieces overlap" if len(boxes) > 1 else ""
    ordered = sorted(boxes, key=lambda box: box.offset[axis])
    for number, box in enumerate(ordered, start=1):
        for later in ordered[number:]:
            if later.offset[axis] >= box.offset[axis] + box.length[axis]:
                break
            if box.overlap(later) is not None:
                return "pieces overlap"
    return "" if sum(prod(box.length) for box in boxes) == prod(shape) else "pieces are missing"
