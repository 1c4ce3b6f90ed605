"""What the record of a grid tells once more, or once for all, and its means over cells."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import torch

from paragan.coevolution.evolution import Generations
from paragan.coevolution.profile import Profile
from paragan.core.clock import Clock
from paragan.report.chart import run_end
from paragan.report.grid_record import GridHistory
from paragan.report.population import population_section
from tests.unit.test_grid_report import cells, population


def test_record_with_changed_neighbourhood_applies_from_then_on():
    lines = [{"generation": n, "cells": cells(1.0, 2.0, 3.0, weights=[0.5, 0.5])} for n in (1, 2, 3, 4, 5)]
    lines[1]["neighbours"] = [[0, 2], [1, 2], [2, 0]]
    lines[3]["neighbours"] = [[0, 7], "x"]
    found, named = population(shape=(1, 3), neighbours=[[0, 1], [1, 0], [2]]), []
    for n, line in enumerate(lines):
        found.add(n, float(n), line)
        _, mixture = population_section(found, run_end(1.0, 1.0)).notes
        named.append(mixture.removeprefix("Mixture of cell 0: "))
    both, strange = "cell 0 (itself) 0.5, cell 2 0.5.", "itself 0.5, neighbour 1 0.5."
    assert named == ["cell 0 (itself) 0.5, cell 1 0.5.", both, both, strange, strange]
    assert GridHistory().after_start({"shape": [1, 3]}).grid.neighbours == ()


def test_mean_over_cells_does_not_depend_on_which_worker_is_first():
    loss_of = {0: 1e8, 1: 1.0, 2: -1e8}  # the sum in float32 depends on the order
    gan, means = SimpleNamespace(clock=Clock()), set()
    for order in permutations(loss_of):
        scalars = {number: {"d/loss": torch.tensor(loss_of[number])} for number in order}
        scheme = Generations(SimpleNamespace(evolve=lambda scalars=scalars: (Profile(), scalars)))
        means.add(float(scheme.step(gan, iter(())).scalars["d/loss"]))
    assert len(means) == 1
