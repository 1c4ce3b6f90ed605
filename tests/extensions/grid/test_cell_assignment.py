"""Cells are shared out fairly, every cell that another worker reads travels once; recovery after a failure."""

from itertools import product

import pytest

from paragan.extensions.grid.topology import ring, torus
from paragan.extensions.grid.workers.cell_assignment import assign_cells, generation_seconds, rectangular_blocks
from paragan.extensions.grid.workers.coordinator import recovery_sources
from paragan.extensions.grid.workers.genome_exchange import exchange_routes


@pytest.mark.parametrize(("rows", "columns"), list(product(range(1, 7), range(1, 7))))
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 9])
def test_assignment_for_equal_speeds_is_equal(rows, columns, workers):
    workers = min(workers, rows * columns)
    owners = assign_cells(rows, columns, [1.0] * workers)
    counts = [owners.count(worker) for worker in range(workers)]
    assert len(owners) == rows * columns and max(counts) - min(counts) <= 1 and min(counts) >= 1


def test_rectangular_blocks_have_the_shortest_edges():
    assert rectangular_blocks(4, 4, 4) == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]
    assert rectangular_blocks(2, 6, 3) == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    assert rectangular_blocks(3, 3, 4) is None
    assert assign_cells(4, 4, [1.0] * 3) == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    across = {way for way, cells in exchange_routes(rectangular_blocks(4, 4, 4), torus(4, 4)).items() if cells}
    assert len(across) == 8  # a block of a 2x2 torus of blocks has two others beside it


def test_equal_workers_of_a_large_grid_send_what_rectangles_do():
    routes = exchange_routes(assign_cells(16, 16, [1.0] * 16), torus(16, 16))
    assert sum(map(len, routes.values())) == 320  # 512 in stretches of rows


def test_assignment_follows_measured_speeds():
    owners = assign_cells(3, 3, [2.0, 1.0])
    assert [owners.count(worker) for worker in range(2)] == [6, 3]
    owners = assign_cells(2, 2, [100.0, 1.0])
    assert sorted(owners) == [0, 0, 0, 1]  # at least one each
    slow, even = assign_cells(4, 4, [1.0, 0.5, 1.0, 1.0]), assign_cells(4, 4, [1.0] * 4)
    speeds = [1.0, 0.5, 1.0, 1.0]
    assert generation_seconds(slow, speeds) < generation_seconds(even, speeds) == 8.0


@pytest.mark.parametrize(
    "topology", [torus(2, 2), torus(3, 3), torus(4, 4), ring(6)], ids=lambda topology: str(len(topology.neighbours))
)
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_exchange_routes_carry_all_cells_read_and_have_reverses(topology, workers):
    owners = [cell * workers // len(topology.neighbours) for cell in range(len(topology.neighbours))]
    ways = exchange_routes(owners, topology)
    for rank in range(workers):
        mine = {cell for cell, owner in enumerate(owners) if owner == rank}
        come = {cell for (a, b), cells in ways.items() if b == rank for cell in cells}
        assert set(topology.reach(mine)) <= mine | come
        assert {a for a, b in ways if b == rank} == {b for a, b in ways if a == rank}
    assert all(owners[cell] == a and a != b for (a, b), cells in ways.items() for cell in cells)
    if workers > 1:  # whoever dies, each of its cells is somewhere else
        assert {cell for cells in ways.values() for cell in cells} == set(range(len(topology.neighbours)))


LAST = ["a", "a", "b", "b"]


def test_recovery_resumes_at_the_newest_common_boundary():
    held = {"a": {6: [0, 1], 5: [0, 1, 2]}, "b": {5: [2, 3]}}
    edge, found = recovery_sources(held, LAST)
    assert edge == 5 and found == LAST


def test_recovery_after_failure_uses_copies():
    held = {"a": {6: [0, 1, 3], 5: [0, 1, 2, 3]}, "c": {6: [2]}}
    assert recovery_sources(held, LAST) == (6, ["a", "a", "c", "a"])


def test_recovery_without_a_state_of_a_cell_starts_over():
    assert recovery_sources({"a": {6: [0, 1]}}, LAST) == (0, [None] * 4)


def test_recovery_without_copies_uses_the_collected_states():
    held = {"a": {6: [0, 1]}, "coordinator": {4: [0, 1, 2, 3]}}
    assert recovery_sources(held, LAST) == (4, ["coordinator"] * 4)
