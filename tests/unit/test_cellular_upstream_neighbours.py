"""`benchmarks.cellular_upstream.neighbours`: the torus of upstream's loop, as described and with its fault."""

from __future__ import annotations

import pytest

from benchmarks.cellular_upstream import neighbours
from benchmarks.cellular_upstream_cell import Config


@pytest.mark.parametrize(
    ("number", "rows", "columns", "expected"),
    [(0, 1, 1, []), (0, 2, 2, [2, 1]), (1, 3, 3, [7, 4, 0, 2]), (4, 3, 3, [1, 7, 3, 5]), (11, 3, 4, [7, 3, 10, 8])],
)
def test_neighbours(number, rows, columns, expected):
    assert neighbours(number, Config(rows=rows, columns=columns)) == expected


def test_transposed_neighbours_are_those_of_the_mirror_image():
    def all_neighbours(size, **changes):
        config = Config(rows=size, columns=size, **changes)
        return [set(neighbours(number, config)) - {number} for number in range(size * size)]

    assert all_neighbours(3)[1] == {0, 2, 4, 7}
    assert all_neighbours(3, transposed=True)[1] == {0, 4, 5, 6}
    for size, wrong in ((3, 6), (4, 12), (8, 56)):
        pairs = zip(all_neighbours(size), all_neighbours(size, transposed=True), strict=True)
        assert sum(plain != transposed for plain, transposed in pairs) == wrong


def test_transposed_neighbours_of_a_grid_that_is_not_square_are_refused():
    with pytest.raises(ValueError, match="must be square, not 2x3"):
        neighbours(0, Config(rows=2, columns=3, transposed=True))
