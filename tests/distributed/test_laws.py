"""Laws: one is none, ranks are the batch. Float64, three steps, everything compared: weights, average, what is told.

The matrix is {batch norm over ranks, spectral norm, R1, accumulation 1 or 4, conditional}, each on or off, with even
and uneven shards. All of it runs under `./run test all`. Every day each strategy meets on two ranks six sets in which
any two of these six meet in all four ways, and elsewhere two sets in which each of them is on and off.
"""

import itertools
from dataclasses import astuple

import pytest

from tests.laws.matrix_gan import MATRIX
from tests.marks import slow

pytestmark = pytest.mark.distributed

TOLERANCE = 1e-10
CASES = "tests.distributed.cases_laws"
HOSTS = {"host": 2}
WHOLE_BATCH = ("ddp", "zero1", "zero2", "zero3")
LAST = len(MATRIX) - 1  # less a number: the set with every switch the other way
PAIRS = {False: (0, 14, 27), True: (1, 22, 29)}  # by whether shards are uneven
OPPOSITE = {uneven: tuple(LAST - n for n in PAIRS[not uneven]) for uneven in (False, True)}
OF_STRATEGY = {"ddp": PAIRS, "zero1": OPPOSITE, "zero2": PAIRS, "zero3": OPPOSITE, "hsdp": PAIRS, "local_sgd": OPPOSITE}
BOTH_WAYS = {first: (first, LAST - first) for first in (14, 22, 29)}


def hold(pool, g: str, d: str, **how) -> int:
    """The number of sets of switches that were compared on every rank; all of them if no `numbers` are given."""
    by_rank = pool.run(f"{CASES}:matrix", timeout=600, g=g, d=d, **how)
    for found in by_rank:
        assert not [(on, difference) for on, difference in found if not difference <= TOLERANCE]
    return len(by_rank[0])


@pytest.mark.parametrize("pairs", [PAIRS, OPPOSITE])
def test_any_two_of_a_strategys_sets_meet_in_all_ways(pairs):
    rows = [(*astuple(MATRIX[number])[:5], uneven) for uneven, numbers in pairs.items() for number in numbers]
    for first, second in itertools.combinations(zip(*rows, strict=True), 2):
        assert len(set(zip(first, second, strict=True))) == 4


@pytest.mark.parametrize("strategy", OF_STRATEGY)
def test_one_is_none(one_rank, strategy):
    assert one_rank.run(f"{CASES}:one_is_none", name=strategy, numbers=OF_STRATEGY[strategy][False]) == [[]]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("strategy", OF_STRATEGY)
def test_one_is_none_over_the_whole_matrix(one_rank, strategy):
    assert one_rank.run(f"{CASES}:one_is_none", timeout=600, name=strategy) == [[]]


@pytest.mark.parametrize("uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("strategy", WHOLE_BATCH)
def test_two_ranks_are_the_batch(two_ranks, strategy, uneven):
    assert hold(two_ranks, strategy, strategy, uneven=uneven, numbers=OF_STRATEGY[strategy][uneven]) == 3


PLACED = [("ddp", "zero3", {}), ("zero1", "zero2", {}), slow("hsdp", "ddp", {"host": 2})]


@pytest.mark.parametrize(("g", "d", "options"), PLACED)
def test_two_ranks_with_parameter_groups_are_the_batch(two_ranks, g, d, options):
    assert hold(two_ranks, g, d, uneven=True, numbers=(22,), options=options, groups=True) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "first"), [("ddp", 14), ("zero1", 22), ("zero2", 29), ("zero3", 14)])
def test_four_ranks_are_the_batch(four_ranks, strategy, first):
    assert hold(four_ranks, strategy, strategy, uneven=first == 22, numbers=BOTH_WAYS[first]) == 2


@pytest.mark.parametrize("first", [slow(14), 22])
def test_four_ranks_in_two_hosts_are_the_batch(four_ranks, first):
    assert hold(four_ranks, "hsdp", "hsdp", uneven=first == 22, options=HOSTS, numbers=BOTH_WAYS[first]) == 2


# eight sets of the matrix, each switch in half of them, under `./run test all`
WIDER = slow((2, 7, 9, 12, 16, 21, 27, 30))


@pytest.mark.parametrize("numbers", [BOTH_WAYS[22], WIDER], ids=["two", "eight"])
@pytest.mark.parametrize(("g", "d"), [("zero3", "ddp"), ("ddp", "zero1")])
def test_each_player_may_lie_otherwise(two_ranks, g, d, numbers):
    assert hold(two_ranks, g, d, uneven=True, numbers=numbers) == len(numbers)


@pytest.mark.parametrize("numbers", [BOTH_WAYS[29], WIDER], ids=["two", "eight"])
@pytest.mark.parametrize("strategy", ["ddp", slow("zero3")])
def test_shared_fakes_too(two_ranks, strategy, numbers):
    assert hold(two_ranks, strategy, strategy, uneven=True, scheme="shared_fakes", numbers=numbers) == len(numbers)


@pytest.mark.parametrize("numbers", [BOTH_WAYS[22], WIDER], ids=["two", "eight"])
@pytest.mark.parametrize("strategy", ["ddp", slow("zero1"), slow("zero3")])
def test_extragradient_too(two_ranks, strategy, numbers):
    """Whole weights are put together after the look ahead, too."""
    assert hold(two_ranks, strategy, strategy, uneven=True, scheme="extragradient", numbers=numbers) == len(numbers)


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
def test_hybrid_ranks_are_the_batch_over_the_whole_matrix(four_ranks, uneven):
    assert hold(four_ranks, "hsdp", "hsdp", uneven=uneven, options=HOSTS) == 32
