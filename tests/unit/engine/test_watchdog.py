"""The watchdog: limits that are learned, and time that is no lack of progress."""

import math
import threading
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from paragan.core.dist import World
from paragan.core.phases import Phase, PhaseClock
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.distributed.launch import hang
from paragan.distributed.launch.hang import HangExchange, RankState, describe_hang
from paragan.engine.watchdog import HangLimits, Watchdog
from paragan.runs.hang_watchdog import _limits, waits_for_score
from tests.processes import wait_for


class Times:
    """A clock of a test: the time of all looks and phases."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def learned(clock, times, phase, seconds, count=3):
    for _ in range(count):
        clock.enter(phase)
        times.now += seconds
        clock.enter(Phase.OTHER)


@pytest.mark.parametrize(
    ("phase", "seconds", "count", "limit"),
    [
        (Phase.D_TURN, 0.1, 2, 300.0),  # not known yet
        (Phase.D_TURN, 0.1, 3, 60.0),  # at least the floor
        (Phase.D_TURN, 5.0, 3, 160.0),  # 20 times 8, the power of 2 above
        (Phase.D_TURN, 50.0, 3, 300.0),  # at most the ranks' time-out
        (Phase.CHECKPOINT, 0.1, 3, 300.0),
        (Phase.EVALUATION, 0.1, 3, 300.0),
    ],
)
def test_limit_follows_the_durations_of_the_phase(phase, seconds, count, limit):
    times = Times()
    clock = PhaseClock(times)
    learned(clock, times, phase, seconds, count)
    assert HangLimits(60.0, 300.0).seconds(phase, clock) == limit


def test_limit_of_a_process_alone_is_infinite_until_it_is_learned():
    assert HangLimits(60.0).seconds(Phase.G_TURN, PhaseClock()) == math.inf


@pytest.fixture
def watched():
    """Times, clock, watchdog with a limit of 8 s, and its alarms."""
    times, alarms = Times(), []
    clock = PhaseClock(times)
    learned(clock, times, Phase.D_TURN, 0.1)
    limits = HangLimits(8.0, 300.0, factor=1.0)
    return times, clock, Watchdog(clock, limits, alarms.append, now=times), alarms


def test_an_alarm_is_raised_once_after_the_limit(watched):
    times, clock, watchdog, alarms = watched
    clock.enter(Phase.D_TURN)
    for second in range(1, 30):
        times.now += 1.0
        watchdog.look()
        assert alarms == ([8.0] if second > 9 else [])


def test_an_alarm_of_a_rank_that_only_waits_is_raised_again(watched):
    times, clock, watchdog, alarms = watched
    watchdog._on_stall = lambda limit: not alarms.append(limit)
    clock.enter(Phase.D_TURN)
    for _ in range(25):
        times.now += 1.0
        watchdog.look()
    assert alarms == [8.0, 8.0]


def test_progress_of_any_kind_prevents_an_alarm(watched):
    times, clock, watchdog, alarms = watched
    clock.enter(Phase.D_TURN)
    for _ in range(30):
        times.now += 1.0
        if round(times.now) % 7 == 0:
            clock.beat()
        watchdog.look()
    assert alarms == []


def test_time_of_a_suspension_is_no_lack_of_progress(watched):
    times, clock, watchdog, alarms = watched
    clock.enter(Phase.D_TURN)
    watchdog.look()
    for _ in range(2):
        times.now += 5000.0  # a laptop that slept, in the middle of a turn
        watchdog.look()
    assert alarms == []
    assert watchdog.progress().suspended_s == pytest.approx(5000)
    times.now += 1.0
    watchdog.look()
    assert watchdog.progress().suspended_s == 0


WAITING = RankState(rank=0, step=9, phase="communication", seconds=40.0)
BUSY = RankState(rank=1, step=8, phase="data", seconds=31.0)


@pytest.mark.parametrize(
    ("states", "line"),
    [
        ([WAITING, BUSY], "rank 1 made no progress for 31.0 s in the phase data of step 9 (limit 30 s)"),
        ([WAITING, None], "rank 1 makes no progress and does not answer (limit 30 s)"),
        ([WAITING], "rank 0 made no progress for 40.0 s in the phase communication of step 10 (limit 30 s)"),
        (
            [BUSY, RankState(rank=1, step=8, phase="optimizer", seconds=12.0, suspended_s=11.0)],
            "rank 1 made no progress for 12.0 s in the phase optimizer of step 9 (limit 30 s); it was suspended",
        ),
        (
            [RankState(rank=0, step=8, phase="g_turn", seconds=31.0, work="cell 2 of generation 4")],
            "cell 2 of generation 4 made no progress for 31.0 s in the phase g_turn (limit 30 s)",
        ),
    ],
)
def test_the_line_names_the_rank_that_others_wait_for(states, line):
    assert describe_hang(dict(enumerate(states)), 30.0) == line


def test_a_ping_finds_whether_all_ranks_answer():
    store = dist.HashStore()
    here, there = (HangExchange(World(rank=rank, size=2, store=store)) for rank in range(2))
    there.answer_ping()  # there is none yet
    assert not here.all_answer(0.1)  # rank 1 is suspended
    there.answer_ping()  # late
    answers = threading.Thread(target=lambda: wait_for(lambda: there.answer_ping() or there._pings == 2, seconds=30))
    answers.start()
    assert here.all_answer(30)
    answers.join(30)


@pytest.mark.parametrize(
    ("rank", "ranks", "phase", "waits"),
    [
        (1, {Side.G: [0], Side.D: [1]}, Phase.EVALUATION, True),
        (0, {Side.G: [0], Side.D: [1]}, Phase.EVALUATION, False),  # scores: its silence is a hang
        (1, {Side.G: [0], Side.D: [1]}, Phase.D_TURN, False),
        (1, {Side.G: [0], Side.D: [0]}, Phase.EVALUATION, True),  # of a parameter server
        (1, {}, Phase.EVALUATION, False),
    ],
)
def test_only_a_rank_without_the_generator_waits_for_a_score(rank, ranks, phase, waits):
    world = World(rank=rank, size=2)
    roles = Roles(world=world, batch_world=world, ranks=ranks)
    assert waits_for_score(roles, RankState(rank=rank, step=1, phase=phase, seconds=40.0)) == waits


FOREIGN = [
    "[]",
    "[1, 2, 3]",
    "7",
    "x",
    '{"rank": [], "code": 1, "reason": 1}',
    '{"rank": 1, "code": 900, "reason": ""}',
]


@pytest.mark.parametrize("value", FOREIGN)
def test_a_reason_that_no_rank_has_written_does_not_end_the_watchdog(monkeypatch, value):
    monkeypatch.setattr(hang, "_REASON_S", 0.1)
    store = dist.HashStore()
    store.set("failed", value)
    exchange = HangExchange(World(rank=0, size=2, store=store))
    assert str(exchange.publish("rank 1 hangs")) == "rank 1 hangs"
    assert exchange.wait_for_reason().exit_code == 75


@pytest.mark.parametrize(
    "value", [*FOREIGN, '{"rank": 1, "step": "x", "phase": "data", "seconds": "y"}', f"[{10**30}]"]
)
def test_a_state_that_no_rank_has_written_counts_as_no_answer(monkeypatch, value):
    monkeypatch.setattr(hang, "_ANSWER_S", 0.1)
    store = dist.HashStore()
    exchange = HangExchange(World(rank=0, size=2, store=store))
    exchange.answer(WAITING)
    store.set("hang/1", value)
    store.set("here/1", value)
    assert exchange.collect() == {0: WAITING, 1: None}


class SilentStore:
    """A store whose process is suspended: no call returns."""

    def __init__(self):
        self.released = threading.Event()

    def check(self, keys):
        self.released.wait(60)


def test_a_store_that_never_answers_delays_a_watchdog_once(monkeypatch):
    monkeypatch.setattr("paragan.distributed.launch.hang._CALL_S", 0.1)
    store = SilentStore()
    exchange = HangExchange(World(rank=0, size=2, store=store))
    assert not exchange.is_requested()
    assert not exchange.is_requested()
    assert exchange._pending.is_alive()
    store.released.set()


@pytest.mark.parametrize(
    ("executor", "size", "floor_s", "max_s"),
    [("eager", 1, 60.0, None), ("eager", 2, 60.0, 200.0), ("compile", 1, 200.0, None), ("compile", 2, 200.0, 200.0)],
)
def test_limits_of_a_rank_leave_time_to_compile_and_to_wait_for_others(monkeypatch, executor, size, floor_s, max_s):
    monkeypatch.setattr("paragan.runs.hang_watchdog._TIMEOUT_SHARE", 0.5)
    train = SimpleNamespace(watchdog_s=60.0, timeout_s=400.0, executor=executor)
    request = SimpleNamespace(config=SimpleNamespace(train=train))
    found = _limits(SimpleNamespace(world=SimpleNamespace(size=size)), request)
    assert found == (HangLimits(floor_s) if max_s is None else HangLimits(floor_s, max_s))
