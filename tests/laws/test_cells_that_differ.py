"""Laws of a grid whose cells differ: a cell's own settings are the run's where it is alone; restating the run's changes
nothing; any number of workers, either executor and a stop in between end at the same genomes.
"""

import pytest
import torch

from paragan.config import read_recipe
from paragan.extensions.grid.build import trainer as build_cells
from paragan.extensions.grid.executors import choice, stacked
from paragan.game.policy import Policy
from paragan.losses import hinge, least_squares, nonsaturating, relativistic
from paragan.optim import adabelief, lamb
from tests.laws import test_loop_is_stacked as stacks
from tests.laws.test_any_workers_evolve_the_same import evolved_by_workers, found, grid
from tests.laws.test_one_cell_is_a_gan import BASE, PLAIN_GRID, digests, everything, numbers, run

DIFFERING = """grid.cells=[
  {at: [0, 4], loss: hinge, g: {lr: 1e-4}, d: {lr: 3e-3}},
  {at: [1], classes: [0, 1, 2, 3, 4], diet: 0.5}, {at: [2], classes: [5, 6, 7, 8, 9]},
  {at: [3, 5], diet: 0.25, d: {lr: 0.005}}]""".replace("\n", " ")
SMALL = (
    *("train.threads=1", "train.batch=8", "scheme={name: skipping}", "penalties=[]", "augment=null", "g.ema=null"),
    *("model={name: mlp, latent: 8, g_widths: [16], d_widths: [16], conditional: true}", "evaluation.features=null"),
    *("grid.shape=2x3", "grid.batches=3", "grid.fitness.num_images=16", "grid.losses=[minimax, nonsaturating]"),
    *("grid.executor=loop", DIFFERING),
)
GENERATIONS = 3


@pytest.mark.parametrize(
    ("own", "runs"),
    [
        (
            "loss: hinge, g: {lr: 5e-4}, d: {lr: 3e-3}",
            ("loss=hinge", "g.optimizer.lr=5e-4", "d.optimizer.lr=3e-3"),
        ),
        ("loss: least_squares, d: {lr: 1e-4}", ("loss=least_squares", "d.optimizer.lr=1e-4")),
    ],
)
def test_a_cell_alone_is_a_run_of_its_settings(tmp_path, own, runs):
    words = (*BASE, "train.kimg=0.16", "scheme=synchronous")
    plain = run(read_recipe("digits", (*words, *runs)), tmp_path, "plain")
    grid = ("grid.shape=1x1", "grid.batches=5", *PLAIN_GRID, f"grid.cells=[{{at: [0], {own}}}]")
    one = run(read_recipe("digits", (*words, *grid)), tmp_path, "one")
    assert one.population.generation == plain.clock.step / 5 == 2
    for name in ("g", "d"):
        (expected, counted), (found, counts) = everything(plain.players[name]), everything(one.players[name])
        assert counts == counted and found.keys() == expected.keys()
        assert all(torch.equal(found[key], value) for key, value in expected.items())


def evolved(population):
    for _ in range(GENERATIONS):
        population.evolve()
    return found(population)


def test_saying_again_what_the_run_says_changes_nothing(tmp_path):
    plain = [word for word in SMALL if not word.startswith("grid.cells") and not word.startswith("grid.losses")]
    again = "grid.cells=[{at: [0, 1], loss: nonsaturating, diet: 1.0}, {at: [2, 5], d: {lr: 1e-3}, g: {lr: 1e-3}}]"
    expected = evolved(grid(plain, range(6), tmp_path))
    assert evolved(grid((*plain, again), range(6), tmp_path)) == expected
    assert evolved(grid(SMALL, range(6), tmp_path)) != expected


@pytest.mark.parametrize("owners", [[1, 0, 0, 1, 0, 1], pytest.param([0, 1, 2, 2, 1, 0], marks=pytest.mark.slow)])
def test_any_workers_evolve_the_same(tmp_path, owners):
    """Each builds its own cells and no others, and knows by the config what the others are."""
    expected = evolved(grid(SMALL, range(6), tmp_path))
    workers = evolved_by_workers(SMALL, owners, tmp_path, GENERATIONS)
    assert {number: told for population in workers for number, told in found(population).items()} == expected


POLICIES = (
    Policy(kind=adabelief.Optimizer, lr=1e-3, arguments={"betas": (0.5, 0.99)}, max_norm=0.7),
    Policy(kind=torch.optim.SGD, lr=1e-2, arguments={"momentum": 0.5}, max_norm=0.7),
    Policy(kind=lamb.Optimizer, lr=1e-3, max_norm=0.7),
    Policy(kind=torch.optim.RMSprop, lr=2e-3, max_norm=0.7),
)
LOSSES = [hinge.loss, least_squares.loss, nonsaturating.loss(nonsaturating.Options()), relativistic.loss]


def differing():
    """Cells of float64 with a loss and a pair of optimisers each."""
    cells = stacks.cells(losses=())
    for cell, policy, rival, loss in zip(cells, POLICIES, reversed(POLICIES), LOSSES, strict=True):
        cell.gan.loss = loss
        for player, mine in zip(cell.players.values(), (policy, rival), strict=True):
            player.policy = mine
            player.__post_init__()
    return cells


def test_stacked_cells_may_differ_in_loss_and_optimiser():
    one, other = differing(), differing()
    assert choice.unstackable_reason(one) is None
    told = choice.train_in_loop(one, 30, lambda cell, batch: 0)
    executor = stacked.StackedExecutor(stacks.BATCH)
    for _ in range(3):
        also = executor(other, 10, lambda cell, batch: 0)
    assert stacks.apart(stacks.weights(one), stacks.weights(other)) < 1e-9
    before, after = stacks.weights(differing()), stacks.weights(one)
    for cell in range(stacks.CELLS):  # each has moved
        mine = [{key: of[key] for key in of if key[0] == cell} for of in (before, after)]
        assert stacks.apart(*mine) > 1e-3
    for cell in one:
        for key, value in told[cell.number].items():
            assert float(value) == pytest.approx(float(also[cell.number][key]), rel=1e-5, abs=1e-7), key


@pytest.mark.slow
def test_stopping_a_grid_of_differing_cells_is_invisible(tmp_path):
    words = (*SMALL, "every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0")
    straight = run(read_recipe("digits", (*words, "train.kimg=0.096")), tmp_path, "straight")
    run(read_recipe("digits", (*words, "train.kimg=0.048")), tmp_path, "stopped")
    config = read_recipe("digits", (*words, "train.kimg=0.096"))
    resumed = build_cells.evolution(config, tmp_path / "stopped", lambda text: None, lambda: False)
    assert resumed.resume() and 0 < resumed.population.generation < straight.population.generation
    for _ in resumed.run():
        pass
    assert digests(resumed) == digests(straight) and numbers(resumed) == numbers(straight)
