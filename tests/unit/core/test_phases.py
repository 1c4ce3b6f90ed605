"""Phases of a training thread add up to its wall time, and cost nothing without a clock."""

import json
import threading
import time

import pytest

from paragan.cli.main import main
from paragan.core.dist import ALONE, World
from paragan.core.phases import Durations, Phase, PhaseClock, beat, phase, set_thread_clock, thread_clock
from paragan.core.roles import colocated_roles
from paragan.engine.phase_log import PhaseLog
from paragan.report.page import Page
from tests.tiny_run import SMALL, TINY


@pytest.fixture
def clock():
    times = iter(range(100))
    clock = PhaseClock(lambda: float(next(times)))
    set_thread_clock(clock)
    yield clock
    set_thread_clock(None)


def test_phases_of_nested_blocks_count_each_second_once(clock):
    with phase(Phase.D_TURN), phase(Phase.COMMUNICATION):  # at 1 and at 2
        pass
    assert clock.current is Phase.OTHER  # at 4
    assert {name: s for name, s in clock.seconds.items() if s} == {"other": 1, "d_turn": 2, "communication": 1}


@pytest.mark.parametrize("whole", [Phase.CHECKPOINT, Phase.EVALUATION])
def test_checkpoint_and_evaluation_include_their_collectives(clock, whole):
    with phase(whole):
        changes = clock.changes
        with phase(Phase.COMMUNICATION):
            assert clock.current is whole
        beat()
        assert clock.changes == changes + 2  # both are progress
    assert clock.seconds[Phase.COMMUNICATION] == 0


def test_a_phase_that_raises_ends(clock):
    with pytest.raises(ValueError, match="no"), phase(Phase.DATA):
        raise ValueError("no")
    assert clock.current is Phase.OTHER


def test_a_thread_without_a_clock_counts_nothing(clock):
    found = []
    thread = threading.Thread(target=lambda: found.append(thread_clock()))
    thread.start()
    thread.join(10)
    assert found == [None]


@pytest.mark.parametrize("seconds", [0.0, 1e-12, 3e-7, 0.011, 1.0, 7.0, 1e9])
def test_quantile_bounds_the_durations_within_a_factor_of_two(seconds):
    durations = Durations()
    for _ in range(99):
        durations.add(seconds)
    durations.add(1e6)
    found = durations.quantile(0.99)
    if 1e-6 < seconds < 2**19:
        assert seconds < found <= 2 * seconds
    elif seconds < 1e-6:
        assert found < 1e-6
    assert durations.quantile(1.0) >= 2**19


def log_of(by_rank, monkeypatch, roles=None):
    """A log whose ranks report these seconds of turns of D, one list per log point."""
    log = PhaseLog(PhaseClock(), roles or colocated_roles(ALONE))
    points = iter(by_rank)
    empty = dict.fromkeys(Phase, 0.0)
    monkeypatch.setattr(World, "gather", lambda world, value: [{**empty, "d_turn": s} for s in next(points)])
    return log


def test_a_rank_that_is_slow_at_three_log_points_in_a_row_is_reported_once(monkeypatch):
    slow, even = [1.0, 1.0, 1.6], [1.0, 1.0, 1.4]
    log = log_of([slow, slow, even, slow, slow, slow, slow], monkeypatch)
    said = [log.read(steps=1)[1] for _ in range(7)]
    assert said[:5] == [[]] * 5 and said[6] == []
    assert said[5] == [
        "warning: rank 2 is a straggler: 1.6 s of work per step, most of it d_turn; 1.6 times the median of the others"
    ]


def test_a_record_of_many_ranks_has_those_with_the_most_work(monkeypatch):
    log = log_of([[float(rank % 50) for rank in range(100)]], monkeypatch)
    values, _ = log.read(steps=1)
    assert values["ranks"] == sorted([*range(42, 50), *range(92, 100)])
    assert values["phase_s"]["d_turn"] == values["wall_s"]
    assert values["per_step"]["d_turn"] == pytest.approx(24.5)


def test_phases_of_a_run_add_up_to_its_wall_time(tmp_path):
    began = time.monotonic()
    words = [*TINY, *SMALL, "train.kimg=0.32", "every.log_steps=5", "every.sample_kimg=0.16", "writers=[jsonl]"]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "run")]) == 0
    wall_s = time.monotonic() - began
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["kind"] == "phases"]
    assert [line["steps"] for line in found] == [5, 5, 5, 5, 0]  # the last one has the checkpoint
    for line in found:
        assert sum(seconds[0] for seconds in line["phase_s"].values()) == pytest.approx(line["wall_s"][0], abs=1e-5)
    # since the trainer was built, up to the end of training: within the command, and most of its session
    total = sum(line["wall_s"][0] for line in found)
    assert lines[-1]["seconds"] * 0.5 < total < wall_s
    assert all(sum(line["phase_s"][name][0] for line in found) > 0 for name in Phase)
    page = Page(tmp_path / "run").render()
    assert "<h2>Phases</h2>" in page and "<td>rank" not in page
