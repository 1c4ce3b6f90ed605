"""Neighbourhoods are what their definitions say, on grids of any shape."""

from itertools import product

import pytest

from paragan.extensions.grid.topology import ring, torus

SHAPES = list(product(range(1, 9), range(1, 9)))


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("radius", [0, 1, 2])
def test_torus_neighbourhood_is_all_cells_within_the_radius(rows, columns, radius):
    found = torus(rows, columns, radius)
    assert len(found.neighbours) == rows * columns

    def steps(a, b, size):
        return min((a - b) % size, (b - a) % size)

    for cell in range(rows * columns):
        (r, c), near = divmod(cell, columns), found.neighbours[cell]
        near_by_definition = {
            other
            for other in range(rows * columns)
            if steps(other // columns, r, rows) + steps(other % columns, c, columns) <= radius
        }
        assert near[0] == cell and len(near) == len(set(near)) and set(near) == near_by_definition
        assert all(cell in found.neighbours[other] for other in near)
    if radius == 1 and min(rows, columns) >= 3:
        assert {len(near) for near in found.neighbours} == {5}


def test_neighbourhood_order_is_fixed():
    assert torus(3, 3).neighbours[4] == (4, 1, 7, 3, 5)  # itself, north, south, west, east
    assert torus(2, 2).neighbours == ((0, 2, 1), (1, 3, 0), (2, 0, 3), (3, 1, 2))
    assert ring(5, 2).neighbours[0] == (0, 4, 1, 3, 2)


@pytest.mark.parametrize("cells", range(1, 9))
@pytest.mark.parametrize("radius", [0, 1, 2])
def test_ring_neighbourhood_extends_to_both_sides(cells, radius):
    for cell, near in enumerate(ring(cells, radius).neighbours):
        assert near[0] == cell and len(near) == len(set(near))
        assert set(near) == {(cell + step) % cells for step in range(-radius, radius + 1)}


def test_reach_is_the_union_of_neighbourhoods():
    assert torus(4, 4).reach([0]) == [0, 1, 3, 4, 12]
    assert torus(4, 4).reach([0, 1, 4, 5]) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13]
