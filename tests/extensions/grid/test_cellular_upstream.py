"""`benchmarks.cellular_upstream`: the smallest grid trains and accounts for its time; neighbours are of a torus."""

import time

import pytest
import torch
from torch import nn

from benchmarks import cellular_upstream as upstream, cellular_upstream_cell as cells, cellular_upstream_timer as timer


def test_smallest_grid_trains_and_times_every_routine():
    config = cells.Config(rows=1, columns=2, batches=2, batch=10, latent=4, hidden=8, num_fitness=10, num_scored=20)
    pixels = torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    classifier = nn.Linear(64, 10)
    run = upstream.Upstream(config, pixels, lambda x: (x, classifier(x.flatten(1))), time.process_time)
    before = [weight.detach().clone() for cell in run.cells for weight in cell.g.net.parameters()]
    for _ in range(4):
        assert run.iterate().keys() == set(timer.ROUTINES)
    after = [weight for cell in run.cells for weight in cell.g.net.parameters()]
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("number", "rows", "columns", "expected"),
    [(0, 1, 1, []), (0, 2, 2, [2, 1]), (1, 3, 3, [7, 4, 0, 2]), (4, 3, 3, [1, 7, 3, 5]), (11, 3, 4, [7, 3, 10, 8])],
)
def test_neighbours(number, rows, columns, expected):
    assert upstream.neighbours(number, cells.Config(rows=rows, columns=columns)) == expected
