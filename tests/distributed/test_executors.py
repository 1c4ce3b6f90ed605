"""Ranks that compile are one process that does not."""

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.slow
def test_compiled_ranks_are_the_batch(two_ranks):
    assert max(two_ranks.run("tests.distributed.cases_executors:compiled", name="ddp")) <= 1e-10


@pytest.mark.slow
def test_compiled_players_on_separate_ranks_are_the_game(two_ranks):
    found = two_ranks.run("tests.distributed.cases_executors:compiled_asynchronous")
    assert [(side, count) for side, _, count in found] == [("g", 2), ("d", 1)]
    assert max(difference for _, difference, _ in found) <= 1e-10
