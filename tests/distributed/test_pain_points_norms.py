"""Pain points of batch norm, spectral norm and pieces on several ranks: the naive code shows them, ours does not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pain_points_norms"
EXACT = 1e-11


def test_buffers_broadcast_before_every_forward(two_ranks):
    """pytorch/pytorch #22095, #65907, #175024; rosinality/stylegan2-pytorch #236; Project-MONAI/GenerativeModels #352;
    huggingface/accelerate #80; jolibrain/joliGEN #126; openclimatefix/skillful_nowcasting #47.

    The error of two forwards and one backward was met on GPUs; on a CPU torch 2.13 does not see that the buffers
    changed. What stays: by default only rank 0's rows are in the statistics; by the folk fix each rank has its own.
    """
    for found in two_ranks.run(f"{CASES}:two_forwards"):
        assert found["default"][0] > 1e-3
        assert found["folk"][1] > 1e-3
        assert max(found["ours"]) <= EXACT
        assert found["gradients"] <= EXACT


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_batch_norm_over_ranks_made_at_home_is_wrong(two_ranks, second):
    """ajbrock/BigGAN-PyTorch #24, #96; sxhxliang/BigGAN-pytorch #18: statistics of a rank alone, or added up where
    autograd cannot see it. pytorch/pytorch #61222: differentiable once, so a penalty is silently another.
    """
    for found in two_ranks.run(f"{CASES}:synchronised", second=second):
        assert min(found["local"], found["of numbers"]) > 1e-3
        assert (found["once"] > 1e-3) == second
        assert found["ours"] <= EXACT


def test_torchs_sync_batch_norm_is_refused_in_a_line(two_ranks):
    """pytorch/pytorch #61222: no second derivative on a GPU, and no CPU at all."""
    for theirs, ours in two_ranks.run(f"{CASES}:torchs_own"):
        assert "expected input tensor to be on GPU" in theirs
        assert "0: nn.SyncBatchNorm has no second derivative" in ours and "\n" not in ours


def test_gradients_do_not_depend_on_the_memory_layout(two_ranks):
    """pytorch/pytorch #64039: of channels-last images they did. Theirs is a GPU kernel: our side only."""
    assert max(two_ranks.run(f"{CASES}:layouts")) <= EXACT


def test_a_norm_that_one_rank_leaves_out_hangs_the_others(two_ranks):
    """vacancy/Synchronized-BatchNorm-PyTorch #44, #18; alibaba-damo-academy/former3d #1; harlanhong/CVPR2022-DaGAN #62.

    For half an hour unless told otherwise; then nobody knows which. Ours names the layer, and a run's waits are bounded
    by `timeout_s`.
    """
    found, other = two_ranks.run(f"{CASES}:called_unequally")
    assert found["unless told"] == 1800
    assert "Timed out" in found["naive"] and "norm" not in found["naive"]
    assert found["ours"].startswith("RankError: 1.norm: not every rank joined in its statistics")
    assert (other["naive"], other["ours"]) == ("", "")


def test_two_norms_that_meet_each_other_are_not_noticed(two_ranks):
    """Of the same threads: called equally often but in another order, the layers take each other's statistics. No sum
    can tell; the comparison of ranks does, and names the layer.
    """
    for found in two_ranks.run(f"{CASES}:called_in_another_order"):
        assert found["naive"] == ""
        assert found["ours"].startswith("RankError: step 1: d: 0.norm.mean differs between ranks 0 and 1")


def test_spectral_norms_vectors_differ_between_ranks(two_ranks):
    """pytorch/pytorch #8160, #11476, #12671, #13350, #57784, #62293, #55368: buffers that start at each rank's own draw
    stay so once broadcasts are off: every rank trains another network.
    """
    for found in two_ranks.run(f"{CASES}:vectors_of_ranks"):
        assert found["naive"] > 1e-3
        assert found["ours"] == 0.0


def test_a_flat_parameter_does_not_freeze_one_network(two_ranks):
    """pytorch/pytorch #104690, #132068; facebookresearch/fairscale #721: refused, or frozen in name only. Ours
    freezes D in every turn of G, and takes networks with layers that their author froze.
    """
    for found in two_ranks.run(f"{CASES}:flat_parameters"):
        assert "Must flatten tensors with uniform `requires_grad`" in found["refused"]
        assert found["gradients of the frozen"] > 0
        for name, (of_one_process, frozen, moved) in found["ours"].items():
            assert of_one_process <= EXACT and frozen == 0 and moved > 1e-3, name


def test_a_penalty_through_pieces_meets_freed_weights(two_ranks):
    """pytorch/pytorch #47562, with weights in pieces: the inner backward frees weights that the outer one needs."""
    for found in two_ranks.run(f"{CASES}:penalised_pieces"):
        assert found["naive"].startswith("RuntimeError: setStorage")
        assert found["ours"] <= EXACT
