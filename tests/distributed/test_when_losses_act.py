"""Two ranks are the plain loop and one process, where D and the adversarial term begin later or D steps less often."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_when_losses_act"


@pytest.mark.parametrize(
    ("strategies", "parts"), [("ddp", 3), ("zero3", 1), pytest.param("zero1", 3, marks=pytest.mark.slow)]
)
def test_two_ranks_resumed_are_the_plain_loop(two_ranks, tmp_path, strategies, parts):
    found = two_ranks.run(f"{CASES}:plain_loop", folder=str(tmp_path), strategies=strategies, parts=parts)
    assert max(found) <= 1e-12


@pytest.mark.parametrize("strategies", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_coin_and_need_are_those_of_one_process(two_ranks, strategies):
    for steps, alone, skipped, skipped_alone, difference in two_ranks.run(
        f"{CASES}:by_coin_and_need", strategies=strategies
    ):
        assert steps == alone and 5 < len(steps) < 30
        assert skipped == skipped_alone > 0.2
        assert difference <= 1e-12
