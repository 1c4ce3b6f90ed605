"""Suspicion and failure by synthetic arrival times: no clock is read."""

import itertools
import random
from collections import deque

import pytest

from paragan.extensions.grid.transports.heartbeat import FailureDetector, silence_limits

STEP_S = 0.25  # between two looks


def limits(gaps_s, heartbeat_s=1.0, timeout_s=300.0):
    """(gap, suspect after, fail after) for each gap, with the limits as they were when it began."""
    recent, found = deque(maxlen=200), []
    for gap_s in gaps_s:
        found.append((gap_s, *silence_limits(recent, heartbeat_s, timeout_s)))
        recent.append(gap_s)
    return found


def failures(found):
    return sum(gap > fail_after for gap, _, fail_after in found)


def suspicions(found):
    return sum(gap > suspect_after for gap, suspect_after, _ in found)


def steady(draw, count):
    return [1.0 + abs(draw.gauss(0, 0.05)) for _ in range(count)]


def bursty(draw, count):
    """Minutes of calm, then seconds of delay in several heartbeats running, as beside a test suite."""
    found = []
    while len(found) < count:
        found += steady(draw, draw.randrange(20, 200))
        found += [draw.uniform(2.0, 8.0) for _ in range(draw.randrange(3, 15))]
    return found[:count]


def long_tailed(draw, count):
    """A tenth of a second late in the median, and now and then many seconds."""
    return [1.0 + 0.1 * draw.lognormvariate(0, 1.5) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("source", "most"), [(steady, 0), (bursty, 0), (long_tailed, 5)])
def test_gaps_of_a_live_process_are_no_failures(source, most, seed):
    """Of five thousand, which is three hours of the default heartbeat."""
    found = limits(source(random.Random(seed), 5000))
    assert failures(found) <= most
    assert suspicions(found) <= 0.01 * len(found)


@pytest.mark.parametrize("seed", range(5))
def test_a_steady_process_is_never_suspected_and_fails_after_ten_heartbeats(seed):
    found = limits(steady(random.Random(seed), 1000))
    assert suspicions(found) == 0
    assert {fail_after for _, _, fail_after in found} == {10.0}


@pytest.mark.parametrize("seed", range(20))
def test_limits_stay_between_floor_and_timeout_whatever_arrives(seed):
    draw = random.Random(seed)
    heartbeat_s, timeout_s = draw.uniform(0.01, 5), draw.uniform(11, 300)
    gaps_s = [heartbeat_s * draw.paretovariate(0.5) for _ in range(500)] + [0.0] * 500
    for _, suspect_after, fail_after in limits(gaps_s, heartbeat_s, timeout_s):
        assert min(10 * heartbeat_s, timeout_s) <= fail_after <= timeout_s
        assert min(2 * heartbeat_s, timeout_s) <= suspect_after <= fail_after


def test_the_limit_grows_with_the_longest_gap_and_shrinks_once_that_is_past():
    found = limits([1.0] * 10 + [6.0] + [1.0] * 250)
    after = [fail_after for _, _, fail_after in found]
    assert after[10] == 10.0 and after[11] == 24.0
    assert after[210] == 24.0 and after[211] == 10.0


def watched(detector, start_s, stop_s, heard=(), step_s=STEP_S):
    """(time, name) of each failure when it is first seen, in `[start_s, stop_s)`; `heard` beat each whole second."""
    found = {}
    for now in itertools.takewhile(lambda now: now < stop_s, itertools.count(start_s, step_s)):
        if now == int(now):
            [detector.record_arrival(name, now) for name in heard]
        for name, silence in detector.suspects(now).items():
            if silence.is_failure:
                found.setdefault(name, now)
    return found


def test_a_process_that_falls_silent_is_first_suspect_and_then_failed():
    detector = FailureDetector(1.0, 300.0)
    assert watched(detector, 0, 10, ["a", "b"]) == {}  # both last heard at 9
    assert watched(detector, 10, 11.25, ["a"]) == {} and not detector.suspects(11.0)
    silence = detector.suspects(11.25)["b"]
    assert (silence.seconds, silence.fail_after_s, silence.is_failure) == (2.25, 10.0, False)
    assert watched(detector, 11.5, 30, ["a"]) == {"b": 19.25}
    detector.forget("b")
    assert watched(detector, 30, 50, ["a"]) == {}


def test_a_suspect_that_is_heard_again_is_suspect_no_more_and_has_longer():
    detector = FailureDetector(1.0, 300.0)
    watched(detector, 0, 10, ["a"])
    watched(detector, 10, 15)
    assert detector.suspects(15.0)
    detector.record_arrival("a", 15.0)
    watched(detector, 15.25, 21)
    assert not detector.suspects(21.0)  # as long as the silence before
    assert watched(detector, 21.25, 100) == {"a": 39.25}


def test_a_coordinator_that_was_suspended_blames_no_worker():
    """For an hour. Afterwards a worker that has failed meanwhile is found as if it had just fallen silent."""
    detector = FailureDetector(1.0, 300.0)
    watched(detector, 0, 5, ["a", "b"])
    assert not detector.suspects(3600.0)
    found = watched(detector, 3601, 3700, ["a"])
    assert list(found) == ["b"] and found["b"] >= 3608.0


def test_a_coordinator_that_is_always_slow_still_finds_the_failed():
    """It looks every 5 heartbeats: the tenth look after the last message."""
    detector, found = FailureDetector(1.0, 300.0), {}
    for look in range(30):
        detector.record_arrival("live", 5.0 * look)
        if look == 0:
            detector.record_arrival("dead", 0.0)
        for name, silence in detector.suspects(5.0 * look).items():
            if silence.is_failure:
                found.setdefault(name, look)
    assert found == {"dead": 11}


def test_gaps_of_the_coordinator_do_not_lengthen_the_limit_of_workers():
    detector = FailureDetector(1.0, 300.0)
    watched(detector, 0, 5, ["a"])
    watched(detector, 3600, 3605, ["a"])
    assert watched(detector, 3605, 3700) == {"a": 3614.25}
