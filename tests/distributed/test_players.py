"""Three and four players on ranks equal one process, in float64: networks, averages, optimisers, counters."""

from __future__ import annotations

import pytest
import torch

from tests.distributed import cases_players as cases

pytestmark = pytest.mark.distributed
CASES = "tests.distributed.cases_players"
FOUR = ("fake_score", "doubt")


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


@pytest.mark.parametrize("strategy", ["ddp", "zero3", pytest.param("zero1", marks=pytest.mark.slow)])
def test_four_players_on_two_ranks_with_a_resume_equal_one_process(tmp_path, two_ranks, whole, strategy):
    for steps, trained in ((1, 1), (cases.STEPS, cases.STEPS - 1)):
        how = {"folder": str(tmp_path), "strategy": strategy, "parts": 2, "names": FOUR, "steps": steps}
        assert two_ranks.run(f"{CASES}:train", **how) == [trained] * 2
    assert_close(cases.tensors_of(tmp_path), whole)
