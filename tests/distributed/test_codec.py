"""Two ranks of the codec are the plain loop, resumed twice; relative feature matching has one part."""

import pytest

pytestmark = [pytest.mark.distributed, pytest.mark.slow]  # in one process: tests/laws/test_plain_loops.py


@pytest.mark.parametrize(("strategies", "parts"), [("zero3", 1), ("ddp", 3)])
def test_two_ranks_resumed_are_the_plain_loop(two_ranks, tmp_path, strategies, parts):
    case = "tests.distributed.cases_codec:plain_loop"
    found = two_ranks.run(case, folder=str(tmp_path), strategies=strategies, parts=parts)
    assert max(found) <= 1e-12
