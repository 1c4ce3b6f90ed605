"""Scores do not depend on the number of ranks: every metric of the registry, of generated and of real images."""

import pytest

from tests.distributed.cases_scores import metrics_of_features

CASES = "tests.distributed.cases_scores"

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("ranks", ["one_rank", "two_ranks", "four_ranks"])
def test_every_metric_is_the_same_on_any_number_of_ranks(ranks, request):
    for found in request.getfixturevalue(ranks).run(f"{CASES}:differences"):
        assert {name.partition("[")[0] for name in found} == set(metrics_of_features())
        assert max(found.values()) <= 1e-9, found
