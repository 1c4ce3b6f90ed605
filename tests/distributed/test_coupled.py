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
    [("ddp", False), ("ddp", True), pytest.param("zero3", True), pytest.param("zero1", True, marks=pytest.mark.slow)],
)
def test_two_ranks_are_the_batch(two_ranks, name, kind, uneven):
    found = two_ranks.run(f"{CASES}:ranks_are_the_batch", name=name, kind=kind, uneven=uneven)
    assert max(found) <= 1e-10


NAMES = ["relativistic_average", "lecam", "feature_matching", "consistency", "auxiliary", "approximate_r2"]


@pytest.mark.parametrize("name", [*NAMES, pytest.param("approximate_r1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["ddp", "zero3"])
def test_two_uneven_ranks_are_the_batch(two_ranks, name, kind):
    found = two_ranks.run(f"{CASES}:ranks_are_the_batch", name=name, kind=kind, uneven=True)
    assert max(found) <= 1e-10
