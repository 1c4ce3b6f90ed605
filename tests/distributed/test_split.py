"""Layers split over ranks are the whole layers on the whole batch: output, derivatives, spectral norm, weights."""

import pytest

from tests.distributed.cases_split import NETS
from tests.marks import slow

CASES = "tests.distributed.cases_split"
TOLERANCE = 1e-12

pytestmark = pytest.mark.distributed


def assert_equal(found: list) -> None:
    for differences, vectors in found:
        assert max(differences.values()) <= TOLERANCE, differences
        assert vectors == found[0][1]


@pytest.mark.parametrize(("cuts", "normed"), [([3, 2], True), ([5, 0], True), ([0, 5], False)], ids=str)
@pytest.mark.parametrize("kind", NETS)
def test_two_ranks_equal_the_whole_network(two_ranks, kind, cuts, normed):
    assert_equal(two_ranks.run(f"{CASES}:against_whole", kind=kind, cuts=cuts, normed=normed))


def test_recomputed_split_layers_equal_the_whole_network(two_ranks):
    assert_equal(two_ranks.run(f"{CASES}:against_whole", kind="vectors", cuts=[5, 0], recompute=True))


@pytest.mark.parametrize(("kind", "size"), [("vectors", 2), ("maps", 4), slow("vectors", 4), slow("maps", 2)])
def test_four_ranks_equal_the_whole_network(four_ranks, kind, size):
    assert_equal(four_ranks.run(f"{CASES}:against_whole", kind=kind, cuts=[2, 1, 0, 2], size=size))


def test_network_built_in_shards_equals_the_whole(two_ranks):
    found = two_ranks.run(f"{CASES}:built_in_shards")
    for same_names, tables, differences, _ in found:
        assert same_names
        assert tables == ["blocks.4.embed"]
        assert set(differences.values()) == {0.0}, differences
    assert [num_elements for *_, num_elements in found] == [6 * 8, 5 * 8]


def test_layer_split_by_outputs_sends_its_input_and_half_of_its_outputs(two_ranks):
    """Of three float64 rows per rank, in the forward, and back in the backward."""
    sent = 3 * 8 * (6 + 8 // 2)
    assert two_ranks.run(f"{CASES}:bytes_of") == [[sent, sent]] * 2


@pytest.mark.parametrize("label", [-1, 10])
def test_invalid_label_fails_on_every_rank(two_ranks, label):
    assert two_ranks.run(f"{CASES}:invalid_label", label=label) == ["IndexError"] * 2


def test_split_linear_layer_with_further_axes_is_refused(two_ranks):
    message = "a split nn.Linear takes inputs of shape (B, features), not (2, 5, 3); flatten the other axes into B"
    assert two_ranks.run(f"{CASES}:further_axes") == [message] * 2


def test_split_layer_that_a_rank_leaves_out_is_reported(two_ranks):
    message, counts = two_ranks.run(f"{CASES}:leaves_out")
    assert counts == [2, 2]
    assert message.startswith("not every rank joined in a split layer (")
    assert "every rank must call the same layers equally often" in message
