"""Complex weights under every strategy, in float64; weights of several dtypes, which FSDP2 cannot shard together."""

import pytest

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_complex"


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_complex_weights_on_two_ranks_are_the_batch(two_ranks, name):
    assert max(two_ranks.run(f"{CASES}:difference", name=name)) <= 1e-10


def test_complex_weights_under_hsdp_are_the_batch(four_ranks):
    assert max(four_ranks.run(f"{CASES}:difference", name="hsdp")) <= 1e-10


@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_weights_of_several_dtypes_in_a_block_are_refused(two_ranks, name):
    for said in two_ranks.run(f"{CASES}:several_dtypes", name=name):
        assert said.startswith("Sequential has weights of float32 and float64, which zero2, zero3 and hsdp")
