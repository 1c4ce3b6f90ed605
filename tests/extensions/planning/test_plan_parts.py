"""Parts of a plan, each shown once it is known; memory of several devices; what is not simulated again."""

from dataclasses import replace

import pytest

from paragan.cli.main import main
from paragan.cli.plan import format_part
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.extensions.planning.plan import DevicePlan, MemoryPlan
from paragan.extensions.planning.plan_run import PlanRequest, plan_run, simulated_game
from paragan.extensions.planning.simulated_step import SimulatedGame, find_largest_batch
from paragan.runs.shape_only_data import shape_only_data
from tests.extensions.planning.test_plan import BATCH, CLASSES, CPU, SHAPE, SMALL, WORDS, planned
from tests.marks import slow


def test_devices_are_planned_with_their_rows_and_the_buckets_of_gradients():
    config = read_recipe("digits", [*WORDS, SMALL["mlp"]])
    alone = simulated_game(config, shape_only_data(SHAPE, CLASSES, None), CPU)
    request = PlanRequest(
        config=replace(config, devices=2), recipe="digits", shape=SHAPE, classes=CLASSES, memory_gb=0.0109
    )
    shown = []
    plan = plan_run(request, show=shown.append)
    buckets = 4 * sum(player.parameters for player in plan.model.players.values())
    assert plan.devices == DevicePlan(
        2, BATCH // 2, alone.peak_bytes(BATCH // 2) + buckets, 2 * plan.memory.largest_batch
    )
    assert plan.notes == () and plan.memory.terms == alone.memory(BATCH).terms  # of one process with the whole batch
    peaks = [alone.peak_bytes(plan.memory.largest_batch + more) + buckets for more in (0, 1)]
    assert peaks[0] <= 10.9e6 < peaks[1]
    first, second = (part for part in shown if isinstance(part, MemoryPlan))  # without, and with the largest batch
    assert first.largest_batch is None and second == plan.memory
    assert "largest batch" not in format_part(first) and f"{second.largest_batch:,}" in format_part(second)


def test_device_whose_rows_are_uneven_is_planned_with_the_most():
    assert planned(SMALL["mlp"], "devices=3").devices.rows == 2


def test_strategies_on_devices_are_planned_as_ddp_and_the_plan_says_so():
    assert "planned as ddp" in planned(SMALL["mlp"], "devices=2", "d.strategy=zero3").notes[0]


# parts are shown as soon as they are known


def test_parts_are_shown_before_the_next_one_is_computed(monkeypatch):
    calls = []
    for name in ("players", "memory", "peak_bytes"):
        method = getattr(SimulatedGame, name)
        monkeypatch.setattr(
            SimulatedGame,
            name,
            lambda self, batch, name=name, method=method: (calls.append(f"{name} {batch}"), method(self, batch))[1],
        )
    config = read_recipe("digits", [*WORDS, SMALL["mlp"], "devices=2"])
    request = PlanRequest(config=config, recipe="digits", shape=SHAPE, classes=CLASSES)
    plan = plan_run(request, show=calls.append)
    assert calls == [
        plan.data,
        f"players {BATCH}",
        plan.model,
        f"memory {BATCH}",
        plan.memory,
        f"peak_bytes {BATCH // 2}",
        f"memory {BATCH // 2}",
        plan.devices,
        None,  # no measured time
    ]


def test_command_prints_the_first_parts_of_a_plan_that_fails_later(monkeypatch, capsys):
    def fail(self, batch):
        raise ConfigError("simulated failure")

    monkeypatch.setattr(SimulatedGame, "memory", fail)
    assert main(["plan", "digits", "--shape", "1x16x16", "--classes", "10", "--memory", "1"]) == 2
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:4] == ["data", "length", "model", "generator"] and "memory" not in names


@pytest.mark.parametrize(
    "words", [[SMALL["mlp"]], slow([SMALL["dcgan"], "augment=ada", "penalties=[{name: r1, weight: 0.1, interval: 4}]"])]
)
def test_a_game_simulated_for_many_batches_needs_what_a_new_one_does(words):
    config = read_recipe("digits", [*WORDS, *words])
    data = shape_only_data(SHAPE, CLASSES, None)
    game = simulated_game(config, data, CPU)
    game.players(BATCH)
    plans = [game.memory(batch) for batch in (BATCH, 2, BATCH)]
    assert plans == [plans[2], simulated_game(config, data, CPU).memory(2), plans[0]]
    assert plans[0] == simulated_game(config, data, CPU).memory(BATCH)


@pytest.mark.parametrize(
    ("state", "per_sample", "limit", "start"), [(2e9, 2e7, 4e9, 2048), (7.5e7, 8e4, 2e8, 64), (1e6, 1.8e5, 1e8, 2)]
)
def test_search_for_the_largest_batch_takes_few_simulations(state, per_sample, limit, start):
    calls = set()

    def peak(batch):
        calls.add(batch)
        return round(1.25 * state + per_sample * batch)

    largest = find_largest_batch(peak, round(limit), start, state_bytes=round(state))
    assert len(calls) <= 6 and peak(largest) <= limit < peak(largest + 1)
