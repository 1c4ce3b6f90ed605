"""Ranks that compile are one process that does not."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def test_compiled_ranks_are_the_batch(two_ranks):
    assert max(two_ranks.run("tests.distributed.cases_executors:compiled", name="ddp")) <= 1e-10
