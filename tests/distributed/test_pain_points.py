"""Pain points of two networks on several ranks: the naive code shows the symptom, ours does not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pain_points"
EXACT = 1e-11


def test_both_networks_in_one_wrapper_wait_for_gradients_that_never_come(two_ranks):
    """Lightning-AI/pytorch-lightning #6517, #13533, #20328, #20866, #20936, #18081; open-mmlab/mmgeneration #286.

    A wrapper of both waits in each turn for the weights of the other network.
    """
    for found in two_ranks.run(f"{CASES}:one_wrapper"):
        assert "Expected to have finished reduction in the prior iteration" in found["naive"]
        assert found["ours"] <= EXACT


def test_gradients_of_the_opponent_travel_for_nothing_and_stay_behind(two_ranks):
    """Lightning-AI/pytorch-lightning #591, #557, #592, #603, #666; deepspeedai/DeepSpeed #399;
    NVlabs/stylegan2-ada-pytorch #233: in G's turn D's gradients are made, reduced, and lie there when D's begins.
    """
    for found in two_ranks.run(f"{CASES}:opponent"):
        assert min(found["naive"]) > 0
        assert found["ours"] == [0, 0]


def test_manual_optimisation_past_the_wrapper_lets_ranks_drift(two_ranks):
    """Lightning-AI/pytorch-lightning #9237, #4976: nothing was reduced, and nothing said so."""
    for found in two_ranks.run(f"{CASES}:called_past_the_wrapper"):
        assert not found["naive"]
        assert found["checked"].startswith("RankError: step 1: g: ")
        assert "differs between ranks 0 and 1" in found["checked"]
        assert found["ours"] == ""


def test_ranks_of_one_seed_draw_the_same_latents(two_ranks):
    """Lightning-AI/pytorch-lightning #16166; NVlabs/stylegan2-ada-pytorch #127; open-mmlab/mmcv #373;
    threestudio-project/threestudio #195: N devices train as one. Of 8 draws ours has 8, those of one process.
    """
    for found in two_ranks.run(f"{CASES}:latents"):
        assert found["naive"] == {"z": 4, "shift": 4}
        assert found["ours"] == {"z": 8, "shift": 8}
        assert found["alone"]


def test_attributes_of_the_network_are_gone_behind_the_wrapper(two_ranks):
    """lucidrains/gigagan-pytorch #36: the loop asks the network for something, and the wrapper does not have it."""
    for found in two_ranks.run(f"{CASES}:attributes"):
        assert "'DistributedDataParallel' object has no attribute 'blocks'" in found["naive"]
        assert found["names"].startswith("module.")
        assert all(found["ours"].values()), found["ours"]


def test_accumulation_reduces_at_every_part(two_ranks):
    """NVlabs/stylegan2-ada-pytorch #233; pytorch/pytorch #43201; Lightning-AI/pytorch-lightning #2595, #4092."""
    for found in two_ranks.run(f"{CASES}:accumulation"):
        assert found == {"naive": 4.0, "ours": 1.0}


@pytest.mark.parametrize("total", [8, 5])
def test_the_batch_grows_with_the_ranks_or_its_mean_is_of_means(two_ranks, total):
    """POSTECH-CVLab/PyTorch-StudioGAN #202: is the batch one rank's or everyone's? As one rank's, another world is
    another run; shared out unevenly, the mean of the ranks' means is not that of the rows.
    """
    for found in two_ranks.run(f"{CASES}:global_batch", total=total):
        assert found["batch per rank"] > 1e-3
        assert (found["mean of means"] > 1e-3) == (total % 2 == 1)
        assert found["ours"] <= EXACT
        assert found["images"] == 1


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
