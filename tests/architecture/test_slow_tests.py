"""The lists of slow tests name tests that exist, and the list of unit tests over 2 s of CPU only gets shorter."""

from types import SimpleNamespace

import pytest

from tests.conftest import is_temporary
from tests.many_cases import EVERY_CASE, FOUR_CASES, costly, extra_cases
from tests.nightly import SLOW
from tests.processes import ROOT
from tests.scheduling import longest

MAX_LONG_UNIT_TESTS = 5  # may only fall
FOUR = [f"{file}::test_{test}" for file, tests in FOUR_CASES.items() for test in tests]


def test_lists_of_slow_tests_name_what_exists():
    wrong = []
    for name in (*SLOW, *longest(), *EVERY_CASE, *FOUR):
        file, _, test = name.partition("::")
        is_there = (ROOT / file).exists()
        if not is_there or (test and f"def {test.partition('[')[0]}" not in (ROOT / file).read_text()):
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize(
    ("count", "daily"), [(1, [0]), (4, [0, 1, 2, 3]), (5, [0, 1, 3, 4]), (9, [0, 3, 5, 8]), (100, [0, 33, 66, 99])]
)
def test_of_many_cases_four_that_are_spread_are_daily(count, daily):
    names = [f"{FOUR[0]}[{number}]" for number in range(count)]
    others = [f"tests/unit/test_a.py::test_b[{number}]" for number in range(count)]
    assert extra_cases([*names, *others]) == set(names) - {names[number] for number in daily}


def test_no_law_is_among_the_tests_of_four_cases():
    assert [name for name in FOUR if name.startswith(tuple(EVERY_CASE))] == []


@pytest.mark.parametrize(
    ("name", "count", "cpu_s", "is_named"),
    [
        ("tests/unit/test_a.py::test_b", 5, 0.5, True),
        ("tests/unit/test_a.py::test_b", 5, 0.3, False),
        ("tests/unit/test_a.py::test_b", 4, 5, False),
        ("tests/laws/test_a.py::test_b", 5, 5, False),
        (FOUR[0], 5, 5, False),
    ],
)
def test_costly_tests_of_many_cases_are_named(name, count, cpu_s, is_named):
    reports = [SimpleNamespace(nodeid=f"{name}[{n}]", user_properties=[("cpu_s", cpu_s)]) for n in range(count)]
    assert [name in line for line in costly(reports)] == [True] * is_named


def test_unit_tests_over_two_seconds_only_become_fewer():
    assert sum("::" in name for name in longest()) <= MAX_LONG_UNIT_TESTS


def test_libraries_in_the_temporary_folder_are_not_forgotten(tmp_path, monkeypatch):
    """A virtual environment may lie there: a torch that is imported twice ends the process."""
    assert not is_temporary(pytest)
    module = type(pytest)("library")
    module.__file__ = str(tmp_path / "venv" / "library.py")
    assert is_temporary(module)
    monkeypatch.setattr("tests.conftest.LASTING", (str(tmp_path / "venv"),))
    assert not is_temporary(module)
