"""Two ranks are the plain loop and one process, where D and the adversarial term begin later or D steps less often."""

import pytest

from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_when_losses_act"


@pytest.mark.parametrize(("strategies", "parts"), [slow("ddp", 3), ("zero3", 1), slow("zero1", 3)])
def test_two_ranks_resumed_are_the_plain_loop(two_ranks, tmp_path, strategies, parts):
    found = two_ranks.run(f"{CASES}:plain_loop", folder=str(tmp_path), strategies=strategies, parts=parts)
    assert max(found) <= 1e-12


@pytest.mark.parametrize("strategies", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_coin_is_that_of_one_process(two_ranks, strategies):
    for steps, alone, difference in two_ranks.run(f"{CASES}:by_coin", strategies=strategies):
        assert steps == alone and 25 < len(steps) < 42  # two thirds of 50
        assert difference <= 1e-12


ENDS = {"start": {"start": 0.0, "final": 1.0}, "end": {"start": 1.0, "final": 0.0}}


@pytest.mark.parametrize("strategies", ["ddp", "zero1"])
@pytest.mark.parametrize("change", ENDS)
def test_weights_that_only_the_adversarial_loss_reaches_move_while_it_acts(two_ranks, strategies, change):
    for before, after, difference in two_ranks.run(
        f"{CASES}:decoder_without_loss", kind=strategies, weight=ENDS[change]
    ):
        moves, rests = (after, before) if change == "start" else (before, after)
        assert moves > 1e-3 and rests == 0
        assert difference <= 1e-12


def test_turns_without_a_due_term_synchronize_ranks(two_ranks):
    here, there = two_ranks.run(f"{CASES}:lazy_local_sgd")
    assert here == there
    assert here[:3] == [2, 4, 12]
    assert here[3] == here[4]  # the average follows
