"""How fast a run goes, told from the times of its events."""

import pytest

from paragan.core.event import Event
from paragan.engine import session
from paragan.engine.options import EveryOptions


@pytest.fixture
def elapse(monkeypatch: pytest.MonkeyPatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(session.time, "monotonic", lambda: now[0])

    def elapse(seconds: float) -> None:
        now[0] += seconds

    return elapse


def timer() -> session.ProgressTimer:
    return session.ProgressTimer(total=10_000, every=EveryOptions(score_kimg=0, sample_kimg=0, save_kimg=0), began=0.0)


def run(elapse, seconds: list[float]) -> session.ProgressTimer:
    timed = timer()
    for step, spent in enumerate(seconds, start=1):
        elapse(spent)
        timed.record(Event(kind="step", step=step, images=10 * step))
    return timed


def test_timer_first_step_is_a_warm_up(elapse):
    timed = run(elapse, [5.0] + [0.1] * 9)
    assert timed.images_per_s() == pytest.approx(100)
    assert timed.eta_s(100) == pytest.approx(99)


def test_timer_single_step_gives_an_estimate(elapse):
    assert run(elapse, []).images_per_s() == 0
    assert run(elapse, [5.0]).images_per_s() == pytest.approx(2)


def test_timer_run_beyond_its_length_has_eta_zero():
    """A generation of a grid may be longer than the run."""
    every = EveryOptions(score_kimg=1, sample_kimg=1, save_kimg=1)
    timed = session.ProgressTimer(total=1000, every=every, began=0.0)
    timed.record(Event(kind="checkpoint", step=100, images=9600, repeat_s=5.0))
    assert timed.eta_s(9600) == 0


@pytest.mark.parametrize("kind", ["phases", "traffic", "loading", "delays", "event"])
def test_timer_event_of_a_step_that_comes_before_it_takes_none_of_its_images(kind):
    """At a log point the phases of a step are written before its numbers; with every.log_steps=1 at each."""
    timed = timer()
    for step in range(1, 4):
        timed.record(Event(kind=kind, step=step, images=10 * step))
        timed.record(Event(kind="step", step=step, images=10 * step))
    assert timed.images_per_s() > 0


def test_timer_resume_and_rollback_count_the_images_of_their_own_steps(elapse):
    timed = timer()
    timed.record(Event(kind="start", step=100, images=1000))
    for step in (101, 102):
        elapse(1.0)
        timed.record(Event(kind="step", step=step, images=10 * step))
    assert timed.images_per_s() == pytest.approx(10)
    timed.record(Event(kind="event", step=50, images=500))
    elapse(1.0)
    timed.record(Event(kind="step", step=51, images=510))
    assert timed.images_per_s() == pytest.approx(10)
