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
