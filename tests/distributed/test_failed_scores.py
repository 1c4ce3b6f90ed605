"""An extractor that fails on one rank fails on all: none waits, and all go on with the same calls of a sharded G."""

import pytest

CASE = "tests.distributed.cases_failed_scores:features"
TEXT = "features are not finite"


@pytest.mark.parametrize(
    ("failing", "expected"), [([], 12), ([0], f"rank 0: {TEXT}"), ([1], f"rank 1: {TEXT}"), ([0, 1], TEXT)]
)
def test_extractor_that_fails_on_some_ranks_fails_on_all(two_ranks, failing, expected):
    found = two_ranks.run(CASE, failing=failing)
    assert [list(each) for each in found] == [[expected, 3]] * 2


@pytest.mark.parametrize(
    ("part", "failing", "expected"),
    [("generator", [1], f"rank 1: {TEXT}"), ("generator", [0, 1], TEXT), ("first images", [0], f"rank 0: {TEXT}")],
)
def test_generator_that_fails_on_some_ranks_fails_on_all(two_ranks, part, failing, expected):
    """As by an input that one rank alone reads."""
    found = two_ranks.run(CASE, failing=failing, part=part)
    assert [list(each) for each in found] == [[expected, 3]] * 2
