"""Losses that couple samples see those of all ranks, with their gradient; others are what they are on one."""

from __future__ import annotations

import pytest

CASES = "tests.distributed.cases_coupled"

pytestmark = pytest.mark.distributed


def test_rows_of_all_ranks_with_the_gradient_of_all(two_ranks):
    found = two_ranks.run(f"{CASES}:whole_rows")
    every = [float(n) for n in range(20)]
    assert [values for values, _, _ in found] == [every] * 2
    assert [grad for _, grads, _ in found for grad in grads] == [2 * n * (1 + 2) for n in every]
    assert [labels for _, _, labels in found] == [list(range(20))] * 2


@pytest.mark.parametrize("name", ["contrastive", "data_to_data"])
@pytest.mark.parametrize(
    ("kind", "uneven"),
    [("ddp", False), ("zero3", True), *(pytest.param(n, True, marks=pytest.mark.slow) for n in ("ddp", "zero1"))],
)
def test_two_ranks_are_the_batch(two_ranks, name, kind, uneven):
    found = two_ranks.run(f"{CASES}:ranks_are_the_batch", name=name, kind=kind, uneven=uneven)
    assert max(found) <= 1e-10


WHOLE = ["relativistic_average", "lecam", "auxiliary"]
CUT = ["relativistic_average", "feature_matching", "consistency", "approximate_r2"]
RARE = [("ddp", name) for name in (*CUT[1:], "approximate_r1")] + [("zero3", n) for n in (*WHOLE[1:], "approximate_r1")]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("ddp", name) for name in WHOLE),
        *(("zero3", name) for name in CUT),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in RARE),
    ],
)
def test_two_uneven_ranks_are_the_batch(two_ranks, name, kind):
    found = two_ranks.run(f"{CASES}:ranks_are_the_batch", name=name, kind=kind, uneven=True)
    assert max(found) <= 1e-10
