"""The strategy tensor on real ranks, against one process, in float64, and what it shares with pipeline."""

import pytest

from tests.distributed.cases_laws import strategy
from tests.distributed.test_laws import PAIRS, hold
from tests.laws.matrix_gan import MATRIX, Discriminator
from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pipeline"
TOLERANCE = 1e-10
TABLES = {"rows": 3}
LAYERS = {"rows": 3, "outputs": ("blocks.1.layer",)}


@pytest.mark.parametrize(
    ("options", "uneven", "numbers"),
    [(TABLES, False, (27,)), (LAYERS, True, (31,)), slow(TABLES, False, (13, 31)), slow(LAYERS, True, (13, 27))],
    ids=["tables", "layers", "tables-others", "layers-others"],
)
def test_tensor_two_ranks_are_the_batch(two_ranks, options, uneven, numbers):
    """27 to 31 have batch norm, spectral norm and labels."""
    found = hold(two_ranks, "tensor", "tensor", uneven=uneven, numbers=numbers, options=options)
    assert found == len(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(15,), (29, 13, 27)])
def test_tensor_with_copies_four_ranks_are_the_batch(four_ranks, numbers):
    options = {**LAYERS, "ranks": 2}
    assert hold(four_ranks, "tensor", "tensor", uneven=True, numbers=numbers, options=options) == len(numbers)


@pytest.mark.parametrize(("g", "d"), [slow("tensor", "pipeline"), ("zero3", "tensor")])
def test_tensor_of_one_player_two_ranks_are_the_batch(two_ranks, g, d):
    for difference in two_ranks.run(f"{CASES}:mixed", g=g, d=d, number=31):
        assert difference <= TOLERANCE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 3, "outputs": ("embed",)}, "embed is a class table, split by rows; leave it out of tensor.outputs"),
        ({"outputs": ("first",)}, "no layer of Discriminator matches 'first'"),
        ({}, "Discriminator has no class table of 10,000 rows to split"),
    ],
)
def test_tensor_invalid_layers_are_refused(options, message):
    assert message in strategy("tensor", options).refusal(Discriminator(MATRIX[5]), 2)


def test_tensor_scaled_gradients_are_unscaled(two_ranks):
    """Those of shards are divided by the ranks, whose number multiplies the loss."""
    assert two_ranks.run(f"{CASES}:unscaled") == [[0.25, 0.5]] * 2


# what both strategies share

READERS = {
    "pipeline": {1: ("ddp", "pipeline"), 2: ("zero1", "pipeline"), 3: ("zero3", "ddp"), 4: ("pipeline", "ddp")},
    "tensor": {1: ("ddp", "tensor"), 2: ("pipeline", "tensor"), 3: ("zero3", "ddp"), 4: ("tensor", "zero3")},
}


@pytest.mark.parametrize("name", READERS)
def test_one_rank_is_none(one_rank, name):
    assert one_rank.run("tests.distributed.cases_laws:one_is_none", name=name, numbers=PAIRS[False]) == [[]]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("saved_on", "read_on"), [(2, (1, 4)), slow(4, (2,)), slow(2, (2, 3)), slow(4, (1, 3, 4))])
def test_checkpoint_is_read_by_any_other(tmp_path, request, saved_on, read_on, name):
    """On four ranks a pipeline has two stages with sharded copies."""
    checkpoints = "tests.distributed.cases_checkpoints"
    names = {1: "one_rank", 2: "two_ranks", 3: "three_ranks", 4: "four_ranks"}
    pools = {size: request.getfixturevalue(names[size]) for size in (saved_on, *read_on)}
    pools[saved_on].run(f"{checkpoints}:save", folder=str(tmp_path), g=name, d=name)
    for size in read_on:
        g, d = READERS[name][size]
        assert max(pools[size].run(f"{checkpoints}:go_on", folder=str(tmp_path), g=g, d=d)) <= TOLERANCE


@pytest.mark.parametrize("name", ["pipeline", slow("tensor")])
def test_run_resumed_on_equal_ranks_repeats_every_bit(two_ranks, tmp_path, name):
    case = "tests.distributed.cases_checkpoints:stopped_and_not"
    assert two_ranks.run(case, folder=str(tmp_path), steps=1, g=name, d=name) == [True, True]


@pytest.mark.parametrize(
    ("name", "options", "reuse"),
    [
        ("pipeline", {"micro_batches": 2}, True),
        ("tensor", {"rows": 3}, True),
        slow("pipeline", {"micro_batches": 2}, False),
    ],
)
def test_separate_players_without_delay_are_synchrony(four_ranks, name, options, reuse):
    case = "tests.distributed.cases_asynchronous:no_delay"
    found = four_ranks.run(case, num_g=2, reuse=reuse, name=name, options=options)
    assert [side for side, _, _ in found] == ["g", "g", "d", "d"]
    assert all(difference <= TOLERANCE and told for _, difference, told in found), found
