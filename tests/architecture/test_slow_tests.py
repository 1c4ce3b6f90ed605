"""The lists of slow tests name tests that exist, and the list of unit tests over 2 s of CPU only gets shorter."""

import pytest

from tests.conftest import is_temporary
from tests.nightly import SLOW
from tests.processes import ROOT
from tests.scheduling import longest

MAX_LONG_UNIT_TESTS = 8  # may only fall


@pytest.mark.parametrize("name", [*SLOW, *longest()])
def test_a_list_of_slow_tests_names_what_exists(name):
    file, _, test = name.partition("::")
    assert (ROOT / file).exists()
    assert f"def {test.partition('[')[0]}" in (ROOT / file).read_text() if test else True


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
