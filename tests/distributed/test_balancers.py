"""On two uneven ranks, with whole and sharded weights, balancers are the plain loops on the whole batch."""

import pytest

pytestmark = pytest.mark.distributed

CASES = [("adaptive_weight", "ddp", 3, 12), ("adaptive_weight", "zero3", 1, 12), ("gradient_balancer", "zero3", 3, 12)]
LONG = [
    *((name, kind, 1, 50) for name in ("adaptive_weight", "gradient_balancer") for kind in ("ddp", "zero3")),
    *(("adaptive_weight", kind, 3, 50) for kind in ("zero1", "zero2", "zero3")),
    ("adaptive_weight_output", "ddp", 1, 50),
    ("gradient_normalization", "ddp", 2, 50),
    ("gradient_normalization", "zero3", 1, 50),
]


@pytest.mark.parametrize(
    ("name", "kind", "parts", "steps"), [*CASES, *(pytest.param(*one, marks=pytest.mark.slow) for one in LONG)]
)
def test_two_ranks_are_the_plain_loop(two_ranks, name, kind, parts, steps):
    case = {"name": name, "kind": kind, "parts": parts, "steps": steps}
    found = two_ranks.run("tests.distributed.cases_balancers:ranks_are_the_batch", **case)
    assert max(weights for weights, _ in found) <= 1e-12
    assert max(factors for _, factors in found) <= 1e-5
