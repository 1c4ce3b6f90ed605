"""Generations of a grid on simulated time."""

from __future__ import annotations

import numpy as np
import pytest

from paragan.coevolution.options import GridOptions
from paragan.scaling.cluster import Link, Unevenness
from paragan.scaling.profile import Curve
from paragan.scaling.simulated_grid import GridProfile, grid_bytes, mean_seconds, simulate_generations
from tests.simulated_workers import FREE, cluster

OPTIONS = GridOptions(shape="2x2")
PROFILE = GridProfile(Curve((1, 4), (1.0, 4.0)), state_bytes=1_000_000)


LINK = Link(0.001, 1e7)


def seconds(workers, link=FREE, age=0):
    return mean_seconds(simulate_generations(PROFILE, OPTIONS, cluster(workers, link), 50, age))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_generation_takes_the_time_of_a_workers_cells(workers):
    assert seconds(workers) == pytest.approx(4 / workers)


def test_lock_step_adds_the_exchange_with_the_neighbours():
    # on a 2x2 torus every worker sends its cell to two others, one after the other
    assert seconds(4, LINK) == pytest.approx(1 + 2 * 0.1 + 0.001)


def test_exchange_sends_each_cell_to_its_neighbours():
    assert grid_bytes(PROFILE, OPTIONS, 4) == 8_000_000
    assert grid_bytes(PROFILE, OPTIONS, 1) == 0


def test_older_copies_hide_the_exchange():
    assert seconds(4, LINK, age=1) == pytest.approx(1)


def test_jitter_costs_the_maximum_over_the_workers():
    sigma = 0.1
    draws = np.exp(sigma * np.random.default_rng(1).standard_normal((4000, 4)) - sigma**2 / 2).max(1).mean()
    found = simulate_generations(PROFILE, OPTIONS, cluster(4, unevenness=Unevenness(jitter=sigma)), 600)
    assert mean_seconds(found) == pytest.approx(draws, rel=0.02)
