"""Three and four players on ranks equal one process, in float64: networks, averages, optimisers, counters."""

import re
from functools import cache
from itertools import pairwise

import pytest
import torch

from tests.distributed import cases_players as cases
from tests.marks import slow

pytestmark = pytest.mark.distributed
CASES = "tests.distributed.cases_players"
FOUR = ("fake_score", "doubt")
IN_TURNS = {"name": "asynchronous", "staleness": 0, "reuse": False}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All tensors of a run of four players in one process."""
    folder = tmp_path_factory.mktemp("whole")
    cases.trainer(folder, names=FOUR).run()
    return cases.tensors_of(folder)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("strategy", ["zero3", *map(slow, ("ddp", "zero1", "zero2", "hsdp"))])
def test_four_players_on_two_ranks_with_a_resume_equal_one_process(tmp_path, two_ranks, whole, strategy):
    for steps, trained in ((1, 1), (cases.STEPS, cases.STEPS - 1)):
        how = {"folder": str(tmp_path), "strategy": strategy, "parts": 2, "names": FOUR, "steps": steps}
        assert two_ranks.run(f"{CASES}:train", **how) == [trained] * 2
    assert_close(cases.tensors_of(tmp_path), whole)


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """All tensors of runs in one process whose players take turns, by their names."""

    @cache
    def run(names):
        folder = tmp_path_factory.mktemp("in_turn")
        cases.trainer(folder, names=names, scheme="synchronous").run()
        return cases.tensors_of(folder)

    return run


def run_on_separate_ranks(pool, folder, ranks, stops=(cases.STEPS,), **how):
    """Train with a stop at each of these steps; the tensors of the newest checkpoint."""
    scheme = {**IN_TURNS, "ranks": ranks}
    names = tuple(name for name in ranks if name not in ("g", "d"))
    for before, steps in pairwise((0, *stops)):
        given = {"folder": str(folder), "names": names, "steps": steps, "scheme": scheme, **how}
        assert pool.run(f"{CASES}:train", timeout=45, **given) == [steps - before] * sum(ranks.values())
    return cases.tensors_of(folder)


def test_three_players_on_ranks_of_their_own_with_a_resume_equal_one_process_bit_for_bit(
    tmp_path, three_ranks, in_turn
):
    found = run_on_separate_ranks(three_ranks, tmp_path, {"g": 1, "d": 1, "fake_score": 1}, stops=(1, cases.STEPS))
    expected = in_turn(("fake_score",))
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


@pytest.mark.slow
def test_four_players_that_call_one_another_on_ranks_of_their_own_equal_one_process(tmp_path, four_ranks, in_turn):
    found = run_on_separate_ranks(four_ranks, tmp_path, {"g": 1, "fake_score": 1, "doubt": 1, "d": 1})
    assert_close(found, in_turn(FOUR))


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("zero3", marks=pytest.mark.slow)])
def test_player_on_two_ranks_of_its_own_equals_one_process(tmp_path, four_ranks, in_turn, strategy):
    ranks = {"g": 1, "d": 1, "fake_score": 2}
    assert_close(run_on_separate_ranks(four_ranks, tmp_path, ranks, strategy=strategy), in_turn(("fake_score",)))


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ({"g": 1, "d": 1}, r"scheme.ranks=.* does not fit 3 ranks"),
        ({"d": 1, "g": 2}, r"scheme.ranks=.* does not fit 3 ranks"),
        ({"g": 1, "d": 2}, r"scheme.ranks has g, d, and the players are g, d, fake_score"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(tmp_path, three_ranks, ranks, problem):
    scheme = {**IN_TURNS, "ranks": ranks}
    refused = three_ranks.run(f"{CASES}:refusal", folder=str(tmp_path), scheme=scheme)
    assert all(re.match(problem, line) for line in refused)
