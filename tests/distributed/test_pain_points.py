"""Pain points of two networks on several ranks: the naive code shows the symptom, ours does not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pain_points"
EXACT = 1e-11


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_a_loss_of_the_penalty_alone_leaves_gradients_unreduced(two_ranks, name):
    """pytorch/pytorch #47562; rosinality/stylegan2-pytorch #56: the last bias has no part in it, the bucket never
    fills, the ranks keep their own gradients; the next turn is refused. Ours needs no "0 x output", and does not step
    the bias, as one process does not.
    """
    for found in two_ranks.run(f"{CASES}:penalty_alone", name=name):
        assert not found["agree"]
        assert "Expected to have finished reduction" in found["again"]
        assert found["ours"] <= EXACT
        assert found["moved"] > 1e-3
        assert found["bias"] == 0


@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_a_gradient_penalty_is_another_one_on_several_devices(two_ranks, name):
    """pytorch/pytorch #2467, #19024: theirs was `DataParallel`, which needs GPUs and is not offered here. What is
    left of it in one process per device: every rank mixes real and fake by the same draws.
    """
    for found in two_ranks.run(f"{CASES}:mixed", name=name):
        assert found["naive"] > 1e-4
        assert found["ours"] <= EXACT
        assert found["moved"] > 1e-3


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_an_overflow_in_the_rows_of_one_rank_is_skipped_by_that_rank_only(two_ranks, name):
    """huggingface/accelerate #174, with weights in pieces: each rank's scaler looks at its own piece."""
    found = two_ranks.run(f"{CASES}:overflow_in_a_piece", name=name)
    assert [rank["naive"] for rank in found] == [[False, 8.0], [True, 4.0]]
    for rank in found:
        moved = rank["ours"].pop("moved")
        assert rank["ours"] == {"still": 0.0, "scale": 4.0, "updates": 2}
        assert moved > 1e-3
