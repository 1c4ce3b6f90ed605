"""Law: turns that are recorded and started again are the turns played one by one, whatever changes meanwhile."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.extensions.grid.build import trainer as grid
from paragan.extensions.grid.executors import choice, stacked
from paragan.game.options import EmaOptions, ScheduleOptions
from paragan.hardware import graphs
from tests.laws.test_loop_is_stacked import BATCH, GAMES, apart, cells, loss_of, weights
from tests.laws.test_stacked_networks_with_state import BATCH as IMAGES, cells as of_convolutions
from tests.tape_graph import TapeGraph

WORDS = (
    "grid.shape=2x2",
    "scheme=synchronous",
    "evaluation.features=null",
    "train.batch=8",
    "augment=null",
    "penalties=[]",
)


@pytest.fixture(autouse=True)
def counted():
    TapeGraph.replays = 0


def recording(rows: int = BATCH):
    return partial(stacked.StackedExecutor(rows), graph=TapeGraph)


DRAWS = {"all kinds": loss_of, "few kinds": lambda cell, batch: (batch // 6 + cell.number // 2) % 3}


@pytest.mark.parametrize(
    ("name", "draw"), [*((name, "all kinds") for name in GAMES if name != "shared-fakes"), ("synchronous", "few kinds")]
)
def test_recorded_turns_are_turns(name, draw):
    played, recorded = cells(**GAMES[name]), cells(**GAMES[name])
    plain, other = stacked.StackedExecutor(BATCH), recording()
    told = []
    for first in (0, 12):  # generations: weights, rates and averages are taken over anew
        also = {"loss_of": lambda cell, batch, first=first: DRAWS[draw](cell, batch + first)}
        told.append((plain(played, 12, **also), other(recorded, 12, **also)))
    for mine, theirs in told:
        for number, numbers in mine.items():
            assert numbers.keys() == theirs[number].keys()
            assert all(torch.allclose(theirs[number][k], value, rtol=1e-9) for k, value in numbers.items())
    assert TapeGraph.replays > 18
    assert apart(weights(recorded), weights(played)) <= 1e-12
    for a, b in zip(recorded, played, strict=True):
        assert [p.version for p in a.players.values()] == [p.version for p in b.players.values()]
        assert [p.images for p in a.players.values()] == [p.images for p in b.players.values()]
        assert a.state().counters == b.state().counters and a.gan.clock == b.gan.clock


@pytest.mark.parametrize("name", ["dcgan", "sngan"])
def test_recorded_turns_change_buffers(name):
    played, recorded = of_convolutions(name), of_convolutions(name)
    for executor, found in ((stacked.StackedExecutor(IMAGES), played), (recording(IMAGES), recorded)):
        executor(found, 6, lambda cell, batch: 0)
    assert choice.unrecordable_reason(recorded) is None and TapeGraph.replays > 6
    assert apart(weights(recorded), weights(played)) <= 1e-12


def test_draws_are_not_recorded():
    assert (
        choice.unrecordable_reason(of_convolutions("dropout")) == "G draws random numbers in its forward pass (dropout)"
    )


def test_what_the_host_counts_is_no_part_of_the_recording():
    """An average that begins to move, and rates that fall."""
    both = cells(losses=()), cells(losses=())
    for found in both:
        for cell in found:
            for p in cell.players.values():
                p.policy = replace(p.policy, schedule=ScheduleOptions(name="linear", warmup=3, start=5, end=20))
            cell.gan.g.ema.options = EmaOptions(half_life_kimg=0.02, start_kimg=0.05)
    stacked.StackedExecutor(BATCH)(both[0], 20, lambda cell, batch: 0)
    recording()(both[1], 20, lambda cell, batch: 0)
    assert TapeGraph.replays >= 30 and apart(weights(both[0]), weights(both[1])) <= 1e-12


def test_a_step_that_is_skipped_in_one_cell_is_skipped_there_alone():
    both = cells(losses=()), cells(losses=())
    for found, executor in zip(both, (stacked.StackedExecutor(BATCH), recording()), strict=True):
        found[1].batches.bad = (7,)
        executor(found, 12, lambda cell, batch: 0)
    assert TapeGraph.replays >= 18 and apart(weights(both[0]), weights(both[1])) <= 1e-12
    assert all(value.isfinite().all() for value in weights(both[1]).values())
    updates = [int(cell.players[Side.D].updates) for cell in both[1]]
    assert updates == [12, 11, 12, 12]


def test_recorded_and_not_may_take_turns():
    """As while they are timed: both train the same stack."""
    other, plain = cells(losses=()), cells(losses=())
    together = stacked.StackedExecutor(BATCH)
    kinds = [together, partial(together, graph=TapeGraph), choice.train_in_loop]
    for number in range(9):
        kinds[number % 3](other, 4, lambda cell, batch: 0)
        choice.train_in_loop(plain, 4, lambda cell, batch: 0)
    assert apart(weights(other), weights(plain)) <= 1e-9 and TapeGraph.replays > 10


def test_fakes_that_are_shared_are_played():
    played, recorded = cells(**GAMES["shared-fakes"]), cells(**GAMES["shared-fakes"])
    stacked.StackedExecutor(BATCH)(played, 8, loss_of)
    recording()(recorded, 8, loss_of)
    assert TapeGraph.replays == 0 and apart(weights(recorded), weights(played)) == 0


def test_a_device_that_records_is_timed_with_it(monkeypatch, tmp_path):
    monkeypatch.setattr(graphs, "graph_factory", lambda device: TapeGraph)
    words = (
        *("model={name: mlp, latent: 8, g_widths: [16], d_widths: [16]}", "data.size=8"),
        *("grid.batches=90", "grid.fitness.num_images=16", "grid.mixture.num_images=16"),
    )
    config = read_recipe("digits", (*WORDS, *words))
    found = grid.evolution(config, tmp_path, print, lambda: False, reading=True).population
    assert isinstance(found.executor, choice.AutoExecutor) and list(found.executor.executors) == [
        "loop",
        "stacked",
        "recorded",
    ]
    found.evolve()
    assert found.executor.chosen in found.executor.executors and TapeGraph.replays > 0


def test_recorded_executor_on_a_device_that_cannot_record_raises(tmp_path):
    config = read_recipe("digits", (*WORDS, "model={name: mlp}", "grid.executor=recorded"))
    with pytest.raises(ConfigError, match=r"grid\.executor=recorded is not possible: this device cannot record"):
        grid.evolution(config, tmp_path, print, lambda: False, reading=True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("scheme=shared_fakes",), "the scheme uses G's images in D's turn before G's turn"),
        (("augment={name: diffaugment}",), "the augmentation draws random numbers in every step"),
    ],
)
def test_recorded_executor_with_unsupported_games_raises(words, told, tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "graph_factory", lambda device: TapeGraph)
    config = read_recipe("digits", (*WORDS, "model={name: mlp}", *words, "grid.executor=recorded"))
    with pytest.raises(ConfigError, match=f"grid.executor=recorded is not possible: {told}"):
        grid.evolution(config, tmp_path, print, lambda: False, reading=True)
