"""The tests find faults: `python -m tests.mutation.mutants` puts one into each of 40 random files."""

import ast
from pathlib import Path

import pytest

from tests.mutation import mutants as mutation
from tests.mutation.mutants import draw_mutants, killer, mutants_of, survivors

NUM = 40
MIN_KILLED = 0.9


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return a == b", {"(a != b)", "return None"}),
        ("x = a + 1", {"((a) - (1))", "2"}),
        ("x = 'step ' + a", set()),
        ("if a and not b: pass", {"((a) or (not b))", "bool(b)"}),
        ("x = True", {"False"}),
        ("raise ValueError(1 + 2)", set()),
        ("x: list[1] = f'{a + 1}'", set()),
    ],
)
def test_faults_of_each_kind(code, expected):
    mutants = mutants_of(f"def f(a, b):\n    {code}\n", Path("é.py"))
    assert {mutant.after for mutant in mutants} == expected
    for mutant in mutants:
        ast.parse(mutant.text)


def test_columns_count_bytes():
    (mutant,) = mutants_of("def f(a):\n    x = 'é', a < 'é'\n", Path("x.py"))
    assert mutant.text == "def f(a):\n    x = 'é', (a <= 'é')\n"


def test_a_seed_draws_the_same_mutants():
    mutants = draw_mutants(7, 5)
    assert list(map(str, mutants)) == list(map(str, draw_mutants(7, 5)))
    assert len({mutant.path for mutant in mutants}) == 5


class CopyOf:
    """A checkout in which the tests end as `outcomes` says, with the fault and without it."""

    def __init__(self, folder, outcomes):
        self.folder = folder
        self.outcomes = outcomes

    def restore(self, path):
        (self.folder / path).write_text("")

    def outcome(self, path):
        return self.outcomes[0 if (self.folder / path).read_text() else 1]


@pytest.mark.parametrize(
    ("outcomes", "is_killed"),
    [
        (("timeout", None), True),  # the fault makes them hang
        (("timeout", "timeout"), False),  # the machine is too slow, with and without the fault
        (("timeout", "test_a"), False),  # they fail without the fault, too
        (("test_a", None), True),
        (("test_a", "test_a"), False),
        ((None, None), False),
    ],
)
def test_tests_kill_a_fault_only_if_they_pass_without_it(tmp_path, monkeypatch, outcomes, is_killed):
    (mutant,) = mutants_of("def f(a, b):\n    x = a < b\n", Path("x.py"))
    copy = CopyOf(tmp_path, outcomes)
    monkeypatch.setattr(mutation, "tests_of", lambda path: [["tests/unit"]])
    monkeypatch.setattr(mutation, "_first_failure", lambda copy, tests: copy.outcome(mutant.path))
    assert killer(copy, mutant) == (outcomes[0] if is_killed else None)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_seeded_mutants_are_killed():
    alive = survivors(11, NUM)
    assert len(alive) <= (1 - MIN_KILLED) * NUM, "\n".join(map(str, alive))
