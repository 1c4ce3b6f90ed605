"""The pool tells what each rank returned, why one failed, and goes on after it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.distributed.pool import Pool

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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_between_cases_the_processes_are_stopped(two_ranks):
    assert works(two_ranks)
    pids = [member.pid for member in two_ranks._members]
    deadline = time.monotonic() + 20  # a signal takes its time
    while [state(pid) for pid in pids] != ["T", "T"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [state(pid) for pid in pids] == ["T", "T"]
    assert works(two_ranks)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_stopped_processes_end_with_their_parent():
    program = (
        "import os; from tests.distributed.pool import Pool; pool = Pool(1); "
        f"pool.run('{CASES}:describe', word='w'); print(pool._members[0].pid, flush=True); os._exit(1)"
    )
    words = [sys.executable, "-c", program]
    pid = int(subprocess.run(words, capture_output=True, text=True, timeout=150, check=False).stdout)
    deadline = time.monotonic() + 20
    while state(pid) not in ("", "Z") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert state(pid) in ("", "Z")


@pytest.mark.slow
def test_where_they_come_from_is_replaced_when_it_is_gone():
    with closing(Pool(1)) as pool:
        assert works(pool)
        pool._nursery._process.kill()
        pool._nursery._process.wait()
        with pytest.raises(AssertionError, match="died with exit code -9"):
            works(pool)
        assert works(pool) and pool.starts == 2


def state(pid: int) -> str:
    """One letter; none where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_another_size_is_another_pool(three_ranks):
    assert works(three_ranks)
