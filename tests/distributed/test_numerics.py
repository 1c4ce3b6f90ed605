"""Games on uneven ranks against one process on the whole batch, straight and after a change of ranks; float64.

Every rank has rows of its own size (3, 1 and 2, or 4 and 2), so means of means would be wrong. The map of the checks is
tests/numerics/README.md.
"""

import pytest

from tests.distributed import cases_numerics as cases
from tests.marks import slow

CASES = "tests.distributed.cases_numerics"
pytestmark = pytest.mark.distributed


def check(pool, name, g, d):
    for straight, resumed, reported in pool.run(f"{CASES}:against_one_process", name=name, g=g, d=d):
        assert straight <= 1e-12
        assert resumed <= 1e-12
        assert reported <= 1e-5


def test_rows_of_all_ranks_with_the_gradient_of_all(two_ranks):
    found = two_ranks.run(f"{CASES}:whole_rows")
    every = [float(n) for n in range(20)]
    assert [values for values, _, _ in found] == [every] * 2
    assert [grad for _, grads, _ in found for grad in grads] == [2 * n * (1 + 2) for n in every]
    assert [labels for _, _, labels in found] == [list(range(20))] * 2


THREE = ["approximate R1 and R2", "consistency", "ADA, lazy R1", "DiffAugment", "orthogonal", "feature matching"]
MORE = ["approximate R1 and R2 in parts", "WGAN-GP", "LeCam", "RaGAN", "balancer, lazy term", "StyleGAN2", "NaN"]


@pytest.mark.parametrize("name", [*THREE, *map(slow, MORE)])
def test_three_ranks_are_one_process(three_ranks, name):
    check(three_ranks, name, "ddp", "ddp")


@pytest.mark.parametrize(
    ("name", "g", "d"),
    [
        ("ADA, R1, extragradient", "zero3", "zero2"),
        slow("LeCam, extragradient", "zero1", "ddp"),
        slow("approximate R1 and R2, shared fakes", "zero2", "zero1"),
        ("ADA in parts", "zero3", "zero3"),
        ("WGAN-GP", "zero2", "zero2"),
        slow("consistency, extragradient", "zero3", "zero2"),
        slow("feature matching", "zero3", "zero3"),
        ("RaGAN", "zero3", "zero3"),
        ("LeCam", "zero3", "zero3"),
        ("contrastive", "zero1", "zero3"),
        slow("data to data", "zero3", "zero1"),
        ("auxiliary", "ddp", "zero3"),
        ("reconstruction", "ddp", "zero3"),
        slow("balancer, lazy term", "zero1", "zero2"),
        ("balancer, lazy term", "zero3", "ddp"),
        slow("lazy WGAN-GP, LeCam", "zero1", "zero2"),
        slow("orthogonal, shared fakes", "zero1", "ddp"),
        ("StyleGAN2, shared fakes", "zero3", "zero3"),
        slow("shared fakes", "ddp", "ddp"),
        ("spectral norm, AdaBelief", "zero3", "zero3"),
        slow("NaN", "zero1", "zero1"),
        ("NaN", "zero3", "zero3"),
        slow("NaN, extragradient", "zero1", "ddp"),
        slow("contrastive", "ddp", "ddp"),
        slow("data to data", "ddp", "ddp"),
        slow("auxiliary", "zero3", "zero1"),
    ],
)
def test_two_ranks_are_one_process(two_ranks, name, g, d):
    check(two_ranks, name, g, d)


@pytest.mark.parametrize(
    ("name", "g", "d"),
    [
        ("ADA in parts", "zero3", "zero2"),
        slow("spectral norm, AdaBelief", "zero3", "zero3"),
        slow("LeCam, extragradient", "zero1", "zero2"),
    ],
)
def test_what_two_ranks_saved_one_process_continues(two_ranks, tmp_path, name, g, d):
    two_ranks.run(f"{CASES}:save", name=name, g=g, d=d, folder=str(tmp_path))
    assert cases.go_on_alone(name, str(tmp_path)) <= 1e-12


@pytest.mark.parametrize(
    ("name", "g", "d"), [("ADA in parts", "zero3", "zero2"), slow("LeCam, extragradient", "zero1", "ddp")]
)
def test_resumed_ranks_repeat_every_bit(three_ranks, tmp_path, name, g, d):
    assert all(three_ranks.run(f"{CASES}:stopped_and_not", name=name, g=g, d=d, folder=str(tmp_path)))
