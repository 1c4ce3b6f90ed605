"""Pools of ranks, one per size and session. They start with the first case that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.distributed.pool import Pool


@pytest.fixture(scope="session")
def one_rank() -> Iterator[Pool]:
    with closing(Pool(1)) as pool:
        yield pool


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Pool]:
    with closing(Pool(2)) as pool:
        yield pool


@pytest.fixture(scope="session")
def three_ranks() -> Iterator[Pool]:
    with closing(Pool(3)) as pool:
        yield pool


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[Pool]:
    with closing(Pool(4)) as pool:
        yield pool
