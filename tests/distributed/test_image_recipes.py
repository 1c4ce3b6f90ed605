"""Two ranks of `translate` and `superres` are their plain loops, resumed twice, also in micro-batches."""

import pytest

pytestmark = [pytest.mark.distributed, pytest.mark.slow]  # in one process: tests/laws/test_plain_loops.py


@pytest.mark.parametrize(("strategies", "parts"), [("zero3", 1), ("ddp", 3)])
@pytest.mark.parametrize("recipe", ["translate", "superres"])
def test_two_ranks_resumed_are_the_plain_loop(two_ranks, tmp_path, recipe, strategies, parts):
    case = "tests.distributed.cases_image_recipes:plain_loop"
    found = two_ranks.run(case, folder=str(tmp_path), recipe=recipe, strategies=strategies, parts=parts)
    assert max(found) <= 1e-12
