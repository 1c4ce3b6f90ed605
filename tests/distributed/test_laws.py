"""Laws: one is none, ranks are the batch. Float64, three steps, everything compared: weights, average, what is told.

The matrix is {batch norm over ranks, spectral norm, R1, accumulation 1 or 4, conditional}, each on or off, with even
and uneven shards. All of it runs under `./run test all`; every day each strategy meets a fifth of it on two ranks with
even shards, another fifth with uneven ones, the four together all of it, and a tenth on four ranks.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.distributed

TOLERANCE = 1e-10
CASES = "tests.distributed.cases_laws"
ACROSS = {"order": "shard-across", "host": 2}
INSIDE = {"order": "shard-inside", "host": 2}
WHOLE_BATCH = ("ddp", "zero1", "zero2", "zero3")


def hold(pool, g: str, d: str, **how) -> int:
    """The number of sets of switches that were compared on every rank."""
    by_rank = pool.run(f"{CASES}:matrix", timeout=600, g=g, d=d, **how)
    for found in by_rank:
        assert not [(on, difference) for on, difference in found if not difference <= TOLERANCE]
    return len(by_rank[0])


@pytest.mark.parametrize("strategy", [*WHOLE_BATCH, "hsdp", "averaged"])
def test_one_is_none(one_rank, strategy):
    assert one_rank.run(f"{CASES}:one_is_none", name=strategy, every=5) == [[]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", [*WHOLE_BATCH, "hsdp", "averaged"])
def test_one_is_none_over_the_whole_matrix(one_rank, strategy):
    assert one_rank.run(f"{CASES}:one_is_none", timeout=600, name=strategy) == [[]]


@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("strategy", WHOLE_BATCH)
def test_two_ranks_are_the_batch(two_ranks, strategy, uneven):
    assert hold(two_ranks, strategy, strategy, uneven=uneven, every=5, first=WHOLE_BATCH.index(strategy) + uneven) >= 6


@pytest.mark.parametrize("number", [0, 1, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3))])
def test_four_ranks_are_the_batch(four_ranks, number):
    assert hold(four_ranks, *[WHOLE_BATCH[number]] * 2, uneven=number % 2 == 1, every=11, first=number) >= 2


@pytest.mark.parametrize(("options", "first"), [(INSIDE, 0), (ACROSS, 3)], ids=["inside", "across"])
def test_four_ranks_in_two_hosts_are_the_batch(four_ranks, options, first):
    assert hold(four_ranks, "hsdp", "hsdp", uneven=first > 0, every=11, first=first, options=options) >= 2


@pytest.mark.parametrize(("g", "d"), [("zero3", "ddp"), ("ddp", "zero1")])
def test_each_player_may_lie_otherwise(two_ranks, g, d):
    assert hold(two_ranks, g, d, uneven=True, every=8, first=5) == 4


@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_shared_fakes_too(two_ranks, strategy):
    assert hold(two_ranks, strategy, strategy, uneven=True, every=8, first=2, scheme="shared_fakes") == 4


@pytest.mark.parametrize(
    "strategy", ["ddp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zero1", "zero3"))]
)
def test_extragradient_too(two_ranks, strategy):
    """Whole weights are put together after the look ahead, too."""
    assert hold(two_ranks, strategy, strategy, uneven=True, every=8, first=2, scheme="extragradient") == 4


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("strategy", WHOLE_BATCH)
@pytest.mark.parametrize("ranks", ["two_ranks", "four_ranks"])
def test_ranks_are_the_batch_over_the_whole_matrix(request, ranks, strategy, uneven):
    pool = request.getfixturevalue(ranks)
    assert hold(pool, strategy, strategy, uneven=uneven) == 32


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("options", [INSIDE, ACROSS], ids=["inside", "across"])
def test_hybrid_ranks_are_the_batch_over_the_whole_matrix(four_ranks, options, uneven):
    assert hold(four_ranks, "hsdp", "hsdp", uneven=uneven, options=options) == 32
