"""The pool tells what each rank returned, why one failed, and goes on after it."""

import pytest

CASES = "tests.distributed.cases_pool"

pytestmark = pytest.mark.distributed


def works(pool) -> bool:
    found = pool.run(f"{CASES}:describe", word="w")
    return [value[:2] for value in found] == [[r, pool.world] for r in range(pool.world)]


def test_values_come_by_rank(two_ranks):
    found = two_ranks.run(f"{CASES}:describe", word="ü\n")
    both = [3.0, ["ü\n"] * 2, ["ü\n"] * 2, {"control": 30}]
    assert found == [[0, 2, *both], [1, 2, *both]]


def test_one_start_serves_many_cases(two_ranks):
    assert works(two_ranks)
    starts = two_ranks.starts
    assert works(two_ranks) and two_ranks.starts == starts


@pytest.mark.parametrize(
    ("case", "arguments", "told"),
    [
        ("raises", {"rank": 1}, r"rank 1 of 2, .*raises: Traceback[\s\S]*ValueError: the reason on rank 1"),
        ("dies", {"rank": 1}, "rank 1 of 2, .*dies: died with exit code -9"),
        ("hangs_here", {"rank": 0, "timeout": 2.0}, r"rank 0 of 2, .* within 2 s[\s\S]*in hangs_here"),
        pytest.param("leaves_one_behind", {}, "out of step", marks=pytest.mark.slow),
        ("returns_a_tensor", {}, "not JSON serializable"),
        pytest.param("is_not_there", {}, "AttributeError", marks=pytest.mark.slow),
    ],
)
def test_failure_is_reported_and_the_next_case_runs(two_ranks, case, arguments, told):
    assert works(two_ranks)
    with pytest.raises(AssertionError, match=told):
        two_ranks.run(f"{CASES}:{case}", **arguments)
    assert works(two_ranks)
