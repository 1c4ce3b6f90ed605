"""Ranks roll back together, by what rank 0 measures, to what one process would have."""

from __future__ import annotations

import pytest

from paragan.core.dist import ALONE
from tests.distributed import cases_rollback as cases

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("sign", "kind"),
    [("telemetry", "ddp"), ("score", "ddp"), pytest.param("telemetry", "zero3", marks=pytest.mark.slow)],
)
def test_rollback_on_two_ranks_equals_that_of_one_process(tmp_path, two_ranks, sign, kind):
    alone = cases.train_alone(ALONE, str(tmp_path), sign)
    (rollback,), *rest = alone
    to_step, length, rates = {"telemetry": (1, 6 + 5, [5e-3, 5e-3]), "score": (2, 9 + 4, [5e-3, 5e-3])}[sign]
    assert rollback["to_step"] == to_step
    assert rest == [length, length, rates]
    settings = {"folder": str(tmp_path), "kind": kind, "sign": sign}
    for *found, difference in two_ranks.run(f"{cases.__name__}:roll_back", **settings):
        assert found == alone
        assert difference <= 1e-10
