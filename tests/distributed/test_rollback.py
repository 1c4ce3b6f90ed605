"""Ranks roll back together, by what rank 0 measures, to what one process would have."""

from __future__ import annotations

import pytest

from paragan.core.dist import ALONE
from tests.distributed import cases_rollback as cases

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("kind", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_rollback_on_two_ranks_equals_that_of_one_process(tmp_path, two_ranks, kind):
    alone = cases.train_alone(ALONE, str(tmp_path))
    (rollback,) = alone[0]
    assert rollback["to_step"] == 1
    assert alone[1:] == [6 + 5, 6 + 5, [5e-3, 5e-3]]
    for *found, difference in two_ranks.run(f"{cases.__name__}:roll_back", folder=str(tmp_path), kind=kind):
        assert found == alone
        assert difference <= 1e-10
