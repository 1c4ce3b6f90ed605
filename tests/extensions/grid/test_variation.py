"""Chance is keyed by place, is as likely as it says, and takes effect."""

import math
from statistics import fmean, pstdev
from types import SimpleNamespace

import pytest

from paragan.config.grid_options import RateOptions
from paragan.core.types import Side
from paragan.extensions.grid.population import Population, draw_loss, mutate_lr, tournament

TIMES = 6000


def test_losses_are_drawn_equally_often():
    counts = [0, 0, 0]
    for time in range(TIMES // 2):
        for cell in range(2):
            counts[draw_loss(3, 1, cell, time)] += 1
    sigma = math.sqrt(TIMES * (1 / 3) * (2 / 3))
    assert all(abs(count - TIMES / 3) < 3 * sigma for count in counts), counts


def test_tournament_selects_the_fittest_of_those_drawn():
    fitness = [3.0, 1.0, 2.0, 5.0, 4.0]
    wins = [tournament(fitness, 2, 0, cell, 0, Side.G) for cell in range(TIMES)]
    assert 3 not in wins  # of two, the least fit never wins
    pairs = 10  # of five; cell i is the best of as many as there are less fit ones
    for index, better_than in ((1, 4), (2, 3), (0, 2), (4, 1)):
        expected = TIMES * better_than / pairs
        assert abs(wins.count(index) - expected) < 3.5 * math.sqrt(expected)
    assert {tournament(fitness, 5, 0, cell, 0, Side.D) for cell in range(20)} == {1}
    assert {tournament([math.nan, 2.0], 2, 0, cell, 0, Side.D) for cell in range(20)} == {1}


def test_tournament_draws_differ_by_side_and_cell():
    fitness = [float(n) for n in range(100)]
    found = {tournament(fitness, 1, 0, cell, time, side) for cell in range(5) for time in range(5) for side in Side}
    assert len(found) > 30


def test_learning_rates_mutate_with_the_given_probability_and_scale():
    options = RateOptions(probability=0.5, form="gaussian", rate=1e-5)
    steps = [mutate_lr(1e-3, options, 3, 0, time, Side.G) - 1e-3 for time in range(TIMES)]
    moved = [step for step in steps if step]
    assert abs(len(moved) - TIMES / 2) < 3 * math.sqrt(TIMES / 4)
    assert abs(fmean(moved)) < 3 * 1e-5 / math.sqrt(len(moved))
    assert abs(pstdev(moved) / 1e-5 - 1) < 0.05
    assert min(mutate_lr(1e-5, RateOptions(1.0, "gaussian", 1e-4), 3, 0, time, Side.D) for time in range(50)) == 0.0
    factors = [mutate_lr(2.0, RateOptions(1.0, "lognormal", 0.1), 3, 0, time, Side.G) / 2 for time in range(TIMES)]
    assert abs(pstdev([math.log(factor) for factor in factors]) / 0.1 - 1) < 0.05


@pytest.mark.parametrize(
    ("current", "new", "is_elite"),
    [(2.0, 1.0, True), (1.0, 2.0, False), (1.0, 1.0, False), (math.nan, 1.0, True), (1.0, math.nan, False)],
)
@pytest.mark.parametrize("replacement", ["elitist", "always"])
def test_a_trained_network_replaces_a_less_fit_or_diverged_one(replacement, current, new, is_elite):
    cell = SimpleNamespace(centre=dict.fromkeys(Side, "before"), fitness={})
    population = SimpleNamespace(options=SimpleNamespace(replacement=replacement))
    after = {Side.G: [new], Side.D: [5.0]}
    Population._replace(population, cell, {Side.G: [current], Side.D: [4.0]}, dict.fromkeys(Side, "trained"), after)
    is_replaced = is_elite or replacement == "always"
    assert cell.centre[Side.G] == ("trained" if is_replaced else "before")
    assert cell.fitness[Side.G] == pytest.approx(new if is_replaced else current, nan_ok=True)
    assert cell.centre[Side.D] == ("trained" if replacement == "always" else "before")
