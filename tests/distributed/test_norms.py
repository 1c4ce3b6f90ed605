"""Batch norm over ranks is batch norm of the whole batch: output, first and second derivatives, running statistics."""

import pytest

from tests.distributed.cases_norms import CHANNELS, KINDS

CASES = "tests.distributed.cases_norms"
TOLERANCE = 1e-12

pytestmark = pytest.mark.distributed


def differences(found: list) -> list[float]:
    """All that should be zero; what should have moved did."""
    for differs, _ in found:
        assert all(v > 1e-3 for name, v in differs.items() if name.endswith("moved")), differs
    return [v for differs, _ in found for name, v in differs.items() if not name.endswith("moved")]


def equal_buffers(found: list) -> bool:
    return all(buffers == found[0][1] for _, buffers in found)


@pytest.mark.parametrize("cuts", [[4, 4], [3, 5], [8, 0]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_equal_the_whole_batch(two_ranks, kind, cuts):
    found = two_ranks.run(f"{CASES}:against_whole", kind=kind, cuts=cuts)
    assert max(differences(found)) <= TOLERANCE, found
    assert equal_buffers(found)


@pytest.mark.parametrize("kind", ["affine", "conditional", "torch"])
def test_four_ranks_equal_the_whole_batch(four_ranks, kind):
    found = four_ranks.run(f"{CASES}:against_whole", kind=kind, cuts=[2, 3, 1, 2])
    assert max(differences(found)) <= TOLERANCE, found
    assert equal_buffers(found)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_four_ranks_have_their_own_statistics_and_common_running_ones(four_ranks, kind, ranks):
    found = four_ranks.run(f"{CASES}:against_whole", kind=kind, cuts=[2, 3, 2, 4], ranks=ranks)
    assert max(differences(found)) <= TOLERANCE, found
    assert equal_buffers(found)


def test_the_sum_can_be_differentiated_again_and_again(two_ranks):
    s = 1.0 + 2.0
    expected = [s**4, 2 * 4 * s**3, 4 * 12 * s**2, 8 * 24 * s]
    assert two_ranks.run(f"{CASES}:all_reduced") == [expected] * 2


def test_one_small_all_reduce_per_forward_and_one_per_backward(two_ranks):
    forward, backward = 8 * (2 * CHANNELS + 1), 8 * 2 * CHANNELS
    once = forward + backward
    assert two_ranks.run(f"{CASES}:bytes_sent") == [[forward, once, once + forward, once + forward]] * 2


def test_running_statistics_follow_armed_finite_batches_on_every_rank(two_ranks):
    found = two_ranks.run(f"{CASES}:followed")
    assert found[0] == found[1]
    idle, mean, var = found[0]
    assert idle == [0.0] * CHANNELS
    assert mean[0] == 0.0 and var[0] == 1.0 and all(mean[1:])


def test_statistics_far_from_zero_do_not_cancel(two_ranks):
    for found in two_ranks.run(f"{CASES}:far_from_zero", low=False):
        assert found.pop("dtypes") == ["torch.float32"] * 4
        assert found.pop("mean") <= 1e-6 and found.pop("var") <= 1e-5
        assert max(found.values()) <= 1e-2, found  # float32 knows such an x to 1e-3


def test_low_precision_keeps_float32_statistics(two_ranks):
    for found in two_ranks.run(f"{CASES}:far_from_zero", low=True):
        assert found.pop("dtypes") == ["torch.bfloat16"] * 3 + ["torch.float32"]
        assert found.pop("mean") <= 1e-6 and found.pop("var") <= 1e-5
        assert max(found.values()) <= 4e-2, found


@pytest.mark.parametrize(("backward", "layer"), [(False, "2.norm"), (True, "2.norm")])
def test_a_layer_that_a_rank_leaves_out_is_named(two_ranks, backward, layer):
    told, nothing = two_ranks.run(f"{CASES}:skips", backward=backward)
    assert nothing is None
    assert told.startswith(f"{layer}: not every rank joined") and "\n" not in told
    assert "every rank must call the same layers equally often" in told


def test_groups_are_made_once_and_copies_use_them(four_ranks):
    found = four_ranks.run(f"{CASES}:same_groups")
    assert found == [[True, ranks, "0:00:30", 0.0] for ranks in ([0, 1], [0, 1], [2, 3], [2, 3])]


def test_gradients_do_not_depend_on_the_memory_layout(two_ranks):
    """pytorch/pytorch #64039: of channels-last images they did, in a kernel of a GPU."""
    assert max(two_ranks.run(f"{CASES}:layouts")) <= 1e-11
