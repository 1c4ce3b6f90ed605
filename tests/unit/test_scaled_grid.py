"""Sizes of grids that grow with their workers, and what does not fit."""

from __future__ import annotations

import pytest

from paragan.coevolution.options import GridOptions
from paragan.coevolution.workers.cell_assignment import assign_cells
from paragan.core.errors import ConfigError
from paragan.scaling.grid_forecast import scaled_grid


@pytest.mark.parametrize(
    ("shape", "topology", "workers", "grown"),
    [
        ("3x3", "torus", 1, "3x3"),
        ("3x3", "torus", 4, "6x6"),
        ("3x3", "torus", 8, "6x12"),
        ("3x3", "torus", 7, "3x21"),
        ("2x4", "torus", 2, "4x4"),
        ("2x2", "torus", 1024, "64x64"),
        ("4x16", "torus", 1, "4x16"),
        ("1x6", "ring", 4, "1x24"),
    ],
)
def test_grid_grows_with_the_workers_as_square_as_possible(shape, topology, workers, grown):
    options = scaled_grid(GridOptions(shape=shape, topology=topology), workers, is_weak=True)
    assert options.shape == grown
    owners = assign_cells(*options.rows_columns, [1.0] * workers)
    assert {owners.count(worker) for worker in range(workers)} == {GridOptions(shape=shape).num_cells}


@pytest.mark.parametrize(
    ("options", "workers", "is_weak", "problem"),
    [
        (GridOptions(), 10, False, "10 workers are too many for a grid of 9 cells; use at most 9, or --scaling weak"),
        (GridOptions(), 1024, True, "1,024 workers with 9 cells each need a grid of 96x96, which is larger than"),
        (GridOptions(shape="1x6", topology="ring"), 500, True, "need a grid of 1x3000, which is larger than"),
        (GridOptions(edges=((0, 1),)), 2, True, "grid.edges names cells, .* use --scaling strong"),
    ],
)
def test_grid_that_does_not_fit_the_workers_is_refused_in_one_line(options, workers, is_weak, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        scaled_grid(options, workers, is_weak)
    assert "\n" not in str(refused.value)
