"""Signs of a collapse: their thresholds, and how often in a row they must be measured."""

import pytest

from paragan.core.event import Event
from paragan.engine.collapse import _MEANS, DIVERGED, OF_ONE_BATCH, PAST_BEST, SLOWED, CollapseMonitor

GOOD = {"d/accuracy_train": 0.8, "d/accuracy_fake": 0.7, "d/saturation": 0.1, "diversity": 1.2}
COLLAPSED = {**GOOD, "diversity": 0.1}
SATURATED = {**GOOD, "d/saturation": 0.95}
WRONG = {**GOOD, "d/accuracy_train": 0.09}


def measured(monitor, *observations, step=1) -> list[str | None]:
    """The sign that lasts after each observation."""
    found = []
    for values in observations:
        monitor.observe(Event(kind="telemetry", step=step, images=0, values=values))
        found.append((monitor.collapse() or (None,))[0])
    return found


def score(value, direction=-1, images=0) -> Event:
    values = {"fd[judge]": value, "num_images": 10, "protocol": {}, "directions": {"fd[judge]": direction}}
    return Event(kind="score", step=4, images=images, values=values)


@pytest.mark.parametrize(
    ("bad", "name"),
    [
        (COLLAPSED, "mode_collapse"), (SATURATED, "d_saturated"),
        ({**GOOD, "d/accuracy_train": 0.2, "d/saturation": 0.3}, "d_certain_and_wrong"),
        (WRONG, "d_wrong"), ({**GOOD, "d/moment_ratio": 0.005}, "stalled"),
        ({**GOOD, "fake_score/moment_ratio": 0.005}, "stalled"),
        ({**GOOD, "fake_score/moment_ratio": float("nan")}, "not_finite"),
        ({**GOOD, "d/accuracy_fake": float("nan")}, "not_finite"), ({"diversity": float("inf")}, "not_finite"),
    ],
)  # fmt: skip
def test_monitor_of_a_sign_that_lasts_finds_a_collapse(bad, name):
    assert measured(CollapseMonitor(patience=2), GOOD, bad, GOOD, bad, bad) == [None, None, None, None, name]
    assert measured(CollapseMonitor(patience=3), GOOD, bad, bad) == [None, None, None]


def test_monitor_does_not_compare_diversity_with_that_of_an_untrained_generator():
    monitor = CollapseMonitor(patience=1)
    assert measured(monitor, {"diversity": 2.0}, step=0) == [None]
    values = [{"diversity": value} for value in (0.08, 0.06, 0.015)]
    assert measured(monitor, *values) == [None, None, "mode_collapse"]


@pytest.mark.parametrize(
    ("values", "direction", "found"),
    [
        ((9, 4, 7.9, 8, 8), -1, [0, 0, 0, 1, 2]), ((0.5, 0.8, 0.41, 0.4, 0.1), 1, [0, 0, 0, 1, 2]),
        ((9, float("nan"), float("inf")), -1, [0, 1, 2]), ((-4.0, -1.0), -1, [0, 0]),
    ],
)  # fmt: skip
def test_monitor_counts_scores_twice_as_bad_as_the_best(values, direction, found):
    monitor = CollapseMonitor(patience=2)
    counts = []
    for value in values:
        monitor.observe(score(float(value), direction))
        counts.append(monitor.bad["score_diverges"])
    assert counts == found
    assert (monitor.collapse() is not None) == (found[-1] == 2)


def past_best(monitor, *values, first=0) -> list[bool]:
    """Whether each score, one every thousand images, shows that the run only gets worse."""
    found = []
    for number, value in enumerate(values, start=first):
        monitor.observe(score(float(value), images=1000 * number))
        found.append((monitor.collapse() or (None,))[0] == "past_best")
    return found


def test_monitor_of_scores_far_from_the_best_for_twice_as_long_as_that_took_finds_a_collapse():
    monitor = CollapseMonitor(patience=2)
    assert past_best(monitor, 9, 6, 4, 5, 5, 5, 5) == [False] * 6 + [True]
    assert past_best(CollapseMonitor(patience=2), 9, 6, 4, 5, 5, 5, 4.3, 5, 5, 5) == [False] * 10  # was near it again
    # the best is that of the untrained players
    assert past_best(CollapseMonitor(patience=2), 4, 5, 6, 7, 7, 7) == [False] * 6
    monitor.restart(is_repeated=True)
    assert past_best(monitor, 4.1, 5, 5, first=7) == [False, False, True]  # again, after a return to the best
    monitor.restart(is_repeated=True)
    assert past_best(monitor, 3, 5, 5, first=10) == [False] * 3  # a new best


def test_every_sign_has_a_meaning():
    """A sign takes its meaning from the advice of its name, or from the collapse itself."""
    monitor = CollapseMonitor(patience=1)
    values = {**GOOD, "d/moment_ratio": 1.0}
    monitor.observe(Event(kind="telemetry", step=1, images=0, values=values))
    monitor.observe(score(4.0))
    assert {*monitor.bad, *SLOWED, *OF_ONE_BATCH, PAST_BEST} - {DIVERGED} <= _MEANS.keys()
    assert len(monitor.bad) == 7
