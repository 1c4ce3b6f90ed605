"""Watchdogs of two ranks agree on the rank that stalls; a rank that waits communicates, and does not compute."""

import pytest

CASES = "tests.distributed.cases_watchdog"
pytestmark = pytest.mark.distributed


def test_a_waiting_rank_names_the_rank_that_it_waits_for(two_ranks):
    line = "rank 1 made no progress for 31.0 s in the phase d_turn of step 7 (limit 30 s)"
    assert two_ranks.run(f"{CASES}:hang_of_rank_1") == [
        ["RankError", 75, line],
        ["PeerFailedError", 75, f"rank 1 stopped because rank 0 failed: {line}"],
    ]


def test_a_wait_for_gradients_counts_as_communication(two_ranks):
    (_, turn_s, communication_s), (delay_s, late_turn_s, _) = two_ranks.run(f"{CASES}:wait_in_backward")
    assert communication_s > turn_s  # where the wait does not count as communication, the turn has nearly all of it
    assert late_turn_s >= 0.9 * delay_s


@pytest.mark.parametrize("strategy", ["zero2", "zero3"])
def test_a_wait_for_sharded_weights_counts_as_communication(two_ranks, strategy):
    (_, turn_s, communication_s), (delay_s, late_turn_s, _) = two_ranks.run(f"{CASES}:wait_for_shards", name=strategy)
    assert communication_s > turn_s  # where the wait does not count as communication, the turn has nearly all of it
    assert late_turn_s >= 0.9 * delay_s
