"""The loading pipeline on simulated time, with the run's own control law."""

from __future__ import annotations

import pytest

from paragan.scaling.cluster import Storage
from paragan.scaling.simulated_loading import Loading, simulate_waits

STEADY = Storage(0.01, read_jitter=0.0)
CONGESTED = Storage(0.005, congested=0.2)


def waits(storage, loading, period_s=0.2, batches=400, seed=0):
    return simulate_waits(storage, loading, period_s, batches, 1_000_000, seed)


def test_consumer_without_prefetch_waits_for_all_reads_of_a_batch():
    assert waits(STEADY, Loading(0), batches=5).tolist() == pytest.approx([0.16] * 5)


def test_pipeline_that_reads_faster_than_the_consumer_works_hides_all_reads():
    found = waits(STEADY, Loading(2, 1))
    assert found[0] == pytest.approx(0.16) and found[2:].max() < 1e-9


def test_pipeline_that_reads_more_slowly_is_limited_by_storage():
    found = waits(STEADY, Loading(2, 1), period_s=0.1)
    assert found[5:].mean() == pytest.approx(0.06, rel=1e-6)


def test_more_readers_read_in_parallel():
    assert waits(STEADY, Loading(2, 2), period_s=0.1)[2:].max() < 1e-9


def test_control_law_waits_less_than_fixed_sizes_under_congestion():
    fixed = waits(CONGESTED, Loading(2, 1)).sum()
    controlled = waits(CONGESTED, Loading(2, 1, is_controlled=True)).sum()
    assert controlled < fixed / 4


def test_waits_repeat_with_their_seed():
    first, second, other = (waits(CONGESTED, Loading(2, 1), seed=seed).tolist() for seed in (1, 1, 2))
    assert first == second != other
