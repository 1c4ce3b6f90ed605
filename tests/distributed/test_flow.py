"""Times and noise of a flow, and of its few-step game, do not depend on the number of ranks."""

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("kind", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
@pytest.mark.parametrize("few_step", [False, True], ids=["flow", "few-step"])
def test_two_ranks_of_a_flow_are_the_batch(two_ranks, kind, few_step):
    found = two_ranks.run("tests.distributed.cases_flow:ranks_are_the_batch", kind=kind, few_step=few_step)
    for difference, moved in found:
        assert difference <= 1e-10
        assert moved > 1e-3
