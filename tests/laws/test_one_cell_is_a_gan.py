"""Law: a grid of one cell, without selection or mutation, is the plain trainer, bit for bit; stopping is invisible."""

import shutil
from pathlib import Path

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.extensions.grid.build import trainer as grid
from paragan.game.state import state_of
from tests.genome_digest import digest

BASE = (
    *("train.threads=1", "train.batch=16", "evaluation.features=null", "model.width=4", "data.size=8"),
    *("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0"),
)
PLAIN_GRID = ("grid.tournament=0", "grid.replacement=always", "grid.rates.probability=0.0", "grid.fitness.num_images=8")
GAMES = {
    "shared-fakes-ema-conditional": ("g.ema.half_life_kimg=0.05",),
    "skipping": ("scheme={name: skipping, every: 2}", "train.kimg=0.208"),  # 25 steps: it ends when D has seen enough
    "two-d-updates": ("scheme=synchronous", "d.updates_per_step=2", "train.kimg=0.32"),
    "other-optimisers": (
        "scheme=synchronous",
        'g.optimizer={name: adabelief, groups: [{match: "*.bias", lr: 7.0e-5}]}',
        "d.optimizer={name: SGD}",
    ),
    "schedule": ("g.schedule={name: linear, end: 12, final: 0.1}", "d.optimizer={name: RMSprop, lr: 1e-3}"),
}


def everything(player):
    """All that a checkpoint of a player holds."""
    pieces, counters = state_of(player)
    return dict(pieces.tensors), counters


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Where the judge of all runs here is kept: it is trained once."""
    return tmp_path_factory.mktemp("judge")


def run(config, tmp_path: Path, name: str, judged: Path | None = None):
    if judged is not None and not (tmp_path / name).exists():
        shutil.copytree(judged, tmp_path / name / "judge")  # empty for the first run
    make = build.trainer if config.grid is None else grid.evolution
    trainer = make(config, tmp_path / name, lambda text: None, lambda: False)
    for _ in trainer.run():
        pass
    if judged is not None:
        shutil.copytree(tmp_path / name / "judge", judged, dirs_exist_ok=True)
    return trainer


@pytest.mark.parametrize("game", GAMES)
def test_one_cell_is_the_plain_trainer(tmp_path, game):
    words = (*BASE, "train.kimg=0.24", *GAMES[game])
    plain = run(read_recipe("digits", words), tmp_path, "plain")
    one = run(read_recipe("digits", (*words, "grid.shape=1x1", "grid.batches=5", *PLAIN_GRID)), tmp_path, "one")
    assert (one.clock.step, one.clock.images) == (plain.clock.step, plain.clock.images)
    assert one.population.generation == plain.clock.step / 5 >= 2
    for name in ("g", "d"):
        (expected, counted), (found, counts) = everything(plain.players[name]), everything(one.players[name])
        assert counts == counted and found.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(found[key], value), f"{name}: {key}"


FULL = (
    *("grid.shape=2x2", "grid.batches=3", "grid.fitness.num_images=32", "grid.mixture.num_images=64"),
    *("grid.losses=[minimax, least_squares, nonsaturating]", "scheme={name: skipping, every: 2}"),
    *("evaluation.features=judge", "evaluation.num_images=64", "g.ema.half_life_kimg=0.05"),
)


def digests(evolution):
    return {cell.number: [digest(cell.centre[side]) for side in Side] for cell in evolution.cells}


def numbers(evolution):
    return {cell.number: (cell.weights, cell.score, cell.fitness, cell.loss) for cell in evolution.cells}


@pytest.mark.parametrize(
    "more",
    [
        ("grid.opponents=random", "scheme=synchronous"),
        *(pytest.param(more, marks=pytest.mark.slow) for more in ((), ("grid.diet=0.25",))),
    ],
)
def test_stopping_a_grid_is_invisible(tmp_path, judged, more):
    words = (*BASE, *FULL, *more)
    straight = run(read_recipe("digits", (*words, "train.kimg=0.192")), tmp_path, "straight", judged)
    run(read_recipe("digits", (*words, "train.kimg=0.08")), tmp_path, "stopped", judged)
    resumed = grid.evolution(
        read_recipe("digits", (*words, "train.kimg=0.192")), tmp_path / "stopped", lambda text: None, lambda: False
    )
    assert resumed.resume() and 0 < resumed.population.generation < straight.population.generation
    for _ in resumed.run():
        pass
    assert digests(resumed) == digests(straight) and numbers(resumed) == numbers(straight)
    assert len({digest for both in digests(straight).values() for digest in both}) == 8  # cells differ


@pytest.mark.slow
def test_a_seed_repeats_a_grid(tmp_path, judged):
    words = (*BASE, *FULL, "train.kimg=0.08")
    first, again, other = (
        run(read_recipe("digits", (*words, f"seed={seed}")), tmp_path, name, judged)
        for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    )
    assert digests(first) == digests(again) != digests(other)


def test_a_line_keeps_the_cell_that_it_began_in(tmp_path):
    words = (*BASE, *FULL, "evaluation.features=null", "train.kimg=0.192", "grid.replacement=always")
    found = run(read_recipe("digits", words), tmp_path, "run")
    lines = {cell.number: {side: cell.centre[side].traits.cell for side in Side} for cell in found.cells}
    assert any(line != number for number, of in lines.items() for line in of.values())  # somebody's clone has won
    assert {cell.centre[side].traits.generation for cell in found.cells for side in Side} == {
        found.population.generation
    }
