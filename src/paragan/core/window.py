"""Which rows of a tensor lie on a rank."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Piece `index` of `of` along the first axis, cut as `torch.chunk` and FSDP2 cut: all but the last of ceil(n / of).

    Later pieces may be empty. Tensors without axes are not cut.
    """

    index: int = 0
    of: int = 1

    def bounds(self, length: int) -> tuple[int, int]:
        """(start, stop) of a first axis of this length."""
        size = -(-length // self.of)
        return min(self.index * size, length), min((self.index + 1) * size, length)

    def cut(self, whole: Tensor) -> Tensor:
        """A view of this piece."""
        if self.of == 1 or whole.dim() == 0:
            return whole
        start, stop = self.bounds(len(whole))
        return whole[start:stop]


@dataclass(frozen=True)
class Layout:
    """How a strategy holds a player on this rank.

    weights: of the network's parameters. state: of the optimiser's tensors and of the average. Where weights are cut,
    both are cut equally. writes: whether this rank is the one among equals that saves its pieces. Buffers are whole
    everywhere. own: which rank of how many, where each has an optimiser state that is whole and its own.
    """

    weights: Window = Window()
    state: Window = Window()
    writes: bool = True
    own: Window = Window()


WHOLE = Layout()
