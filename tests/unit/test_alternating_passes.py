"""Micro-batches that run in turns: their order, results and errors."""

from __future__ import annotations

import threading

import pytest

from paragan.parallel._alternating_passes import pause, run_alternating, running_micro_batch


def traced(trace, number, pauses):
    def run():
        for place in range(pauses + 1):
            trace.append((number, place))
            if place < pauses:
                pause()
        return number

    return run


def test_run_alternating_three_micro_batches_begin_in_every_second_round():
    trace = []
    rounds = []
    assert run_alternating([traced(trace, n, 2) for n in range(3)], rounds.append) == [0, 1, 2]
    assert trace == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert rounds == [False] * 7 + [True]


def test_run_alternating_failed_micro_batch_ends_the_others():
    trace = []

    def fails():
        pause()
        raise ValueError("bad rows")

    before = threading.active_count()
    with pytest.raises(ValueError, match="bad rows"):
        run_alternating([traced(trace, 0, 9), fails, traced(trace, 2, 9)], lambda is_last: None)
    assert threading.active_count() == before
    assert trace == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_pause_outside_of_a_micro_batch_does_nothing():
    pause()
    assert running_micro_batch() is None
