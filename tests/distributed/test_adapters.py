"""Adapters and selected parameters on ranks: equal to one process, and only they are sent and saved."""

import math

import pytest

from tests.marks import slow

CASES = "tests.distributed.cases_adapters"
STEPS, FLOAT64 = 3, 8

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(
    ("name", "parts", "recompute"),
    [("zero1", 2, False), ("zero3", 1, False), slow("ddp", 1, False), slow("zero3", 2, True), slow("zero2", 1, False)],
)
def test_adapters_on_ranks_equal_one_process(two_ranks, name, parts, recompute):
    for found in two_ranks.run(f"{CASES}:against_one_process", name=name, parts=parts, recompute=recompute):
        assert found["difference"] <= 1e-12 and found["spectra"] <= 1e-12
        assert found["base moved"] == 0.0 and found["least moved"] > 1e-6
        assert found["base saved"] == []
        assert found["sha256"] == [True, True]
        weights = sum(math.prod(shape) for shape in found["shapes"])
        pieces = sum(-(-shape[0] // 2) * math.prod(shape[1:]) for shape in found["shapes"])
        expected = {"ddp": weights, "zero1": weights + pieces}  # gradients, and the stepped weights
        if name in expected:
            assert found["sent"] == STEPS * FLOAT64 * expected[name]
            assert found["shared"] == [True, True]


@pytest.mark.parametrize(("name", "other"), [("zero1", "zero3"), slow("zero3", "ddp")])
def test_adapters_resume_under_another_strategy(two_ranks, tmp_path, name, other):
    folder = str(tmp_path / "checkpoints")
    assert max(two_ranks.run(f"{CASES}:resumed", name=name, other=other, folder=folder)) <= 1e-12


@pytest.mark.slow
def test_adapters_under_hsdp_equal_one_process(four_ranks):
    for found in four_ranks.run(f"{CASES}:against_one_process", name="hsdp"):
        assert found["difference"] <= 1e-12 and found["base moved"] == 0.0 and found["sha256"] == [True, True]


@pytest.mark.slow
def test_averaging_over_ranks_leaves_the_base_unchanged(two_ranks):
    for found in two_ranks.run(f"{CASES}:against_one_process", name="local_sgd"):
        assert found["base moved"] == 0.0 and found["least moved"] > 1e-6 and found["base saved"] == []
