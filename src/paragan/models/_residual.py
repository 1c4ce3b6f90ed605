"""How wide the residual networks of `sngan` and `sagan` are."""

from __future__ import annotations

from typing import NamedTuple


class Shape(NamedTuple):
    """Multiples of the width: G from the smallest map up; D from the image down, whose first few blocks halve."""

    width: int
    g: tuple[int, ...]
    d: tuple[int, ...]
    halvings: int
    lowest: int = 4  # side of the smallest map

    def g_widths(self, width: int | None) -> list[int]:
        """Channels of G's maps. width: instead of the paper's."""
        return [(width or self.width) * times for times in self.g]

    def d_widths(self, width: int | None) -> list[int]:
        return [(width or self.width) * times for times in self.d]


SHAPES = {
    8: Shape(128, (2, 2), (1, 1, 1, 1), 1),
    16: Shape(128, (2, 2, 2), (1, 1, 1, 1), 2),
    32: Shape(128, (2, 2, 2, 2), (1, 1, 1, 1), 2),
    48: Shape(64, (8, 4, 2, 1), (1, 2, 4, 8, 16), 4, lowest=6),
    64: Shape(64, (16, 8, 4, 2, 1), (1, 2, 4, 8, 16), 4),
    128: Shape(64, (16, 16, 8, 4, 2, 1), (1, 2, 4, 8, 16, 16), 5),
    256: Shape(64, (16, 16, 8, 8, 4, 2, 1), (1, 2, 4, 8, 8, 16, 16), 6),
    512: Shape(64, (16, 16, 8, 8, 4, 2, 1, 1), (1, 1, 2, 4, 8, 8, 16, 16), 7),
}
