"""A discriminator that compares the images of a batch, and path lengths, see all ranks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("kind", "uneven", "shared"),
    [("ddp", True, False), ("zero3", True, True), pytest.param("ddp", False, True, marks=pytest.mark.slow)],
)
def test_two_ranks_are_the_batch(two_ranks, kind, uneven, shared):
    found = two_ranks.run("tests.distributed.cases_style:ranks_are_the_batch", kind=kind, uneven=uneven, shared=shared)
    assert max(max(pair) for pair in found) <= 1e-10
