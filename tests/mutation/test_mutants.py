"""The tests find faults: `python -m tests.mutation.mutants` puts one into each of 40 random files."""

import ast
from pathlib import Path

import pytest

from tests.mutation.mutants import draw_mutants, mutants_of, survivors

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


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_seeded_mutants_are_killed():
    alive = survivors(11, NUM)
    assert len(alive) <= (1 - MIN_KILLED) * NUM, "\n".join(map(str, alive))
