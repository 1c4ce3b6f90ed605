"""Pain points of batch norm and of sharding: plain torch shows them, ours does not."""

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pain_points"
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


def test_a_flat_parameter_does_not_freeze_one_network(two_ranks):
    """pytorch/pytorch #104690, #132068; facebookresearch/fairscale #721: refused, or frozen in name only. Ours
    freezes D in every turn of G, and takes networks with layers that their author froze.
    """
    for found in two_ranks.run(f"{CASES}:flat_parameters"):
        assert "Must flatten tensors with uniform `requires_grad`" in found["refused"]
        assert found["gradients of the frozen"] > 0
        for name, (of_one_process, frozen, moved) in found["ours"].items():
            assert of_one_process <= EXACT and frozen == 0 and moved > 1e-3, name
