"""What the record of a grid tells once more, or once for all, and its means over cells."""

from itertools import permutations
from types import SimpleNamespace

import torch

from paragan.core.clock import Clock
from paragan.extensions.grid.evolution import Generations
from paragan.extensions.grid.profile import Profile
from paragan.report.chart import run_end
from paragan.report.grid_record import GridHistory
from paragan.report.population import population_section
from tests.extensions.grid.test_grid_report import cells, population


def test_record_names_the_neighbours_of_the_best_cell():
    named = []
    for neighbours in ([[0, 2], [1, 2], [2, 0]], [[0, 7], "x"]):
        found = population(shape=(1, 3), neighbours=neighbours)
        found.add(1, 1.0, {"generation": 1, "cells": cells(1.0, 2.0, 3.0, weights=[0.5, 0.5])})
        _, mixture = population_section(found, run_end(1.0, 1.0)).notes
        named.append(mixture.removeprefix("Mixture of cell 0: "))
    assert named == ["cell 0 (itself) 0.5, cell 2 0.5.", "itself 0.5, neighbour 1 0.5."]
    assert GridHistory().after_start({"shape": [1, 3]}).grid.neighbours == ()


def test_mean_over_cells_does_not_depend_on_which_worker_is_first():
    loss_of = {0: 1e8, 1: 1.0, 2: -1e8}  # the sum in float32 depends on the order
    gan, means = SimpleNamespace(clock=Clock()), set()
    for order in permutations(loss_of):
        scalars = {number: {"d/loss": torch.tensor(loss_of[number])} for number in order}
        scheme = Generations(SimpleNamespace(generation=0, evolve=lambda scalars=scalars: (Profile(), scalars)))
        means.add(float(scheme.step(gan, iter(())).scalars["d/loss"]))
    assert len(means) == 1
