"""Pools of ranks, one per size and session, forked from one process. They start with the first case that asks."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.distributed.nursery import Nursery
from tests.distributed.pool import Pool


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with closing(Nursery()) as nursery:
        yield nursery


@pytest.fixture(scope="session")
def one_rank(nursery) -> Iterator[Pool]:
    with closing(Pool(1, nursery)) as pool:
        yield pool


@pytest.fixture(scope="session")
def two_ranks(nursery) -> Iterator[Pool]:
    with closing(Pool(2, nursery)) as pool:
        yield pool


@pytest.fixture(scope="session")
def three_ranks(nursery) -> Iterator[Pool]:
    with closing(Pool(3, nursery)) as pool:
        yield pool


@pytest.fixture(scope="session")
def four_ranks(nursery) -> Iterator[Pool]:
    with closing(Pool(4, nursery)) as pool:
        yield pool
