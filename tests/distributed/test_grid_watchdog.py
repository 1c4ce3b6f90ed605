"""A grid in one process that hangs ends within its limit, with the cell in its line; one that computes does not."""

import json
import re
import subprocess
import sys

import pytest

from paragan.core.phases import Phase, PhaseClock, set_thread_clock, work_on
from paragan.extensions.grid.executors.choice import train_in_loop
from tests.extensions.grid.test_cell_options import WORDS, grid
from tests.hanging_loss import HANGING_LOSS
from tests.processes import environment

QUICK = ("train.watchdog_s=1", "loss.name=strange.py", "--trust", "--out", "run")
pytestmark = pytest.mark.distributed


@pytest.fixture
def train(tmp_path):
    """Train the tiny grid of four cells with a mishap; return the process and the seconds of its time-out."""
    (tmp_path / "strange.py").write_text(HANGING_LOSS)

    def start(mishap, *words):
        command = [sys.executable, "-m", "paragan", "train", "digits", *WORDS, "train.kimg=0.16", *QUICK, *words]
        options = {"cwd": tmp_path, "env": environment(MISHAP=mishap), "capture_output": True, "text": True}
        return subprocess.run(command, timeout=120, check=False, **options)

    return start


@pytest.mark.slow
def test_a_hanging_step_of_a_cell_is_named_and_ends_the_run(train, tmp_path):
    ended = train("1000,any,g,30")
    line = ended.stderr.strip().splitlines()[-1]
    assert ended.returncode == 75, ended.stderr
    where = r"cell [0-3] of generation [2-4] made no progress for [\d.]+ s in the phase g_turn"
    assert re.match(where + r" \(limit [\d.]+ s\); stacks of ", line), line
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["code"] == 75
    assert "strange.py" in (tmp_path / "run" / "stacks" / "rank-0.txt").read_text()


@pytest.mark.slow
def test_a_hanging_step_of_stacked_cells_is_named(train):
    ended = train("1000,any,d,14", "grid.executor=stacked")
    assert ended.returncode == 75, ended.stderr
    problem = r"^the stack of all cells of generation \d+ made no progress for .* in the phase d_turn \("
    assert re.search(problem, ended.stderr, re.MULTILINE)


@pytest.mark.slow
def test_a_step_shorter_than_the_limit_and_a_grid_without_a_watchdog_train_on(train):
    assert train("0.3,any,g,30").returncode == 0
    assert train("4,any,g,30", "train.watchdog_s=null").returncode == 0


@pytest.mark.slow
def test_a_hang_resumes_by_the_same_command(train, tmp_path):
    assert train("1000,any,g,30", "every.save_kimg=0.016").returncode == 75
    ended = train("0,none,g,0", "every.save_kimg=0.016")
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["code"] == 0


@pytest.mark.parametrize("executor", ["loop", "stacked"])
def test_a_generation_reports_its_progress_by_phase(tmp_path, executor):
    population = grid(tmp_path, f"grid.executor={executor}")
    clock = PhaseClock()
    set_thread_clock(clock)
    try:
        population.evolve()
    finally:
        set_thread_clock(None)
    steps = population.options.batches * (1 if executor == "stacked" else len(population.cells))
    turns = [clock.durations[phase].count for phase in (Phase.D_TURN, Phase.G_TURN)]
    assert min(turns) >= steps
    assert clock.durations[Phase.EVALUATION].count >= len(population.cells) ** 2  # each pair is progress


class Step:
    """A cell that notes what the clock says while it trains."""

    def __init__(self, number, clock, seen):
        self.number, self.clock, self.seen = number, clock, seen

    def train_step(self, loss):
        self.seen.append(self.clock.work)
        return type("Report", (), {"scalars": {}})


def test_cells_are_named_while_they_train_and_not_afterwards():
    clock, seen = PhaseClock(), []
    set_thread_clock(clock)
    try:
        with work_on("generation 3"):
            train_in_loop([Step(n, clock, seen) for n in (0, 5)], 2, lambda cell, batch: 0)
            assert clock.work == "generation 3"
    finally:
        set_thread_clock(None)
    assert seen == ["cell 0 of generation 3"] * 2 + ["cell 5 of generation 3"] * 2
    assert clock.work == ""
