"""The executor that looks which of the others is faster: it changes nothing by looking, and keeps to its choice."""

import time

import pytest

from paragan.config import read_recipe
from paragan.extensions.grid.build import trainer as grid
from paragan.extensions.grid.executors import choice, stacked
from tests.laws.test_loop_is_stacked import BATCH, apart, cells, loss_of, weights

WORDS = (
    *("train.threads=1", "train.batch=4", "model={name: mlp, latent: 4, g_widths: [8], d_widths: [8]}"),
    *("scheme=synchronous", "penalties=[]", "augment=null", "evaluation.features=null", "grid.batches=2"),
    *("grid.shape=2x2", "grid.fitness.num_images=8", "every.sample_kimg=0", "train.kimg=0.024"),
)


def slow(*arguments):
    """As the loop, with more work."""
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    return choice.train_in_loop(*arguments)


def test_auto_executor_chooses_and_prints_the_fastest():
    said = []
    executor = choice.AutoExecutor({"slow": slow, "loop": choice.train_in_loop}, said.append)
    executor(cells(), 2, loss_of)
    assert executor.chosen == "loop"
    assert len(said) == 1 and said[0].startswith("executor  loop (ms per cell and step: slow ")


def test_auto_executor_measurement_changes_no_state():
    one, other = cells(), cells()
    executor = choice.AutoExecutor({"slow": slow, "stacked": stacked.StackedExecutor(BATCH)}, lambda text: None)
    executor(one, 7, loss_of)
    stacked.StackedExecutor(BATCH)(other, 7, loss_of)
    assert executor.chosen == "stacked"
    assert apart(weights(one), weights(other)) == 0
    assert [cell.batches.position for cell in one] == [7] * len(one)
    assert [cell.loss for cell in one] == [cell.loss for cell in other]


@pytest.mark.parametrize("chosen", ["loop", "stacked"])
def test_auto_executor_of_a_resumed_run_repeats_its_choice(tmp_path, chosen):
    def begin(*more):
        run = grid.evolution(read_recipe("digits", [*WORDS, *more]), tmp_path, print, lambda: False)
        assert isinstance(run.population.executor, choice.AutoExecutor)
        return run

    run = begin("train.kimg=0.008")
    run.population.executor.chosen = chosen
    list(run.run())
    after = begin()
    assert after.resume() and after.population.executor.chosen == chosen


def test_auto_executor_with_a_scheme_that_needs_players_never_stacks(tmp_path):
    config = read_recipe("digits", (*WORDS, "scheme=extragradient"))
    found = grid.evolution(config, tmp_path, print, lambda: False, reading=True).population
    assert found.executor is choice.train_in_loop
    found.evolve()
    assert all(int(player.updates) == 2 for cell in found.cells for player in cell.players.values())
