"""The strategy pipeline on real ranks, against one process, in float64."""

import pytest
import torch

import paragan
from tests.distributed.test_laws import BOTH_WAYS, PAIRS, hold
from tests.distributed.test_outside_strategy import resumes_and_exports
from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_pipeline"
TOLERANCE = 1e-10
WHOLE = {"micro_batches": 1}


@pytest.mark.parametrize("uneven", [slow(False), True], ids=["even", "uneven"])
def test_pipeline_two_ranks_are_the_batch(two_ranks, uneven):
    assert hold(two_ranks, "pipeline", "pipeline", uneven=uneven, numbers=PAIRS[uneven], options=WHOLE) == 3


@pytest.mark.parametrize(
    ("g", "d", "number"),
    [
        *(("pipeline", "ddp", 22), ("zero3", "pipeline", 29)),
        *(slow("pipeline", "ddp", 29), slow("zero3", "pipeline", 22)),
    ],
)
def test_pipeline_of_one_player_two_ranks_are_the_batch(two_ranks, g, d, number):
    assert hold(two_ranks, g, d, uneven=True, numbers=(number,), options=WHOLE, groups=True) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("data", "first"), [("ddp", 22), ("zero1", 14), ("zero2", 29), ("zero3", 14)])
def test_pipeline_with_copies_four_ranks_are_the_batch(four_ranks, data, first):
    options = {**WHOLE, "stages": 2, "data": data}
    uneven = first == 22
    assert hold(four_ranks, "pipeline", "pipeline", uneven=uneven, numbers=BOTH_WAYS[first], options=options) == 2


@pytest.mark.parametrize("scheme", ["synchronous", slow("shared_fakes"), slow("extragradient")])
def test_pipeline_micro_batches_are_those_of_accumulation(two_ranks, scheme):
    """Also with batch norm: 31 has every switch on; 21 lacks spectral norm."""
    numbers = (21, 31) if scheme == "synchronous" else (31,)
    case = f"{CASES}:equals_accumulation"
    for found in two_ranks.run(case, numbers=numbers, micro_batches=4, uneven=True, scheme=scheme):
        assert not [pair for pair in found if not pair[1] <= TOLERANCE]


@pytest.mark.parametrize(
    ("model", "options", "penalty"),
    [
        # a second call of D that only the penalty reaches
        ("sngan", {"micro_batches": 2}, "gradient_penalty"),
        slow("biggan", {"micro_batches": 2}, "r1"),
        ("stylegan2", {"micro_batches": 2}, "r1"),
        ("dcgan", {"micro_batches": 3, "cuts": (1,)}, "r1"),
    ],
)
def test_pipeline_of_zoo_networks_two_ranks_are_the_batch(two_ranks, model, options, penalty):
    for difference in two_ranks.run(f"{CASES}:zoo", model=model, options=options, penalty=penalty):
        assert difference <= TOLERANCE


@pytest.mark.parametrize("uneven", [slow(False), True], ids=["even", "uneven"])
def test_pipeline_of_deep_networks_on_four_ranks_is_the_batch(four_ranks, uneven):
    found = four_ranks.run(f"{CASES}:zoo", model="deep", options={"micro_batches": 2}, steps=3, uneven=uneven)
    assert max(found) <= TOLERANCE


@pytest.mark.slow
def test_pipeline_with_recompute_is_the_batch(two_ranks):
    options = {"micro_batches": 4}
    assert max(two_ranks.run(f"{CASES}:zoo", model="sngan", options=options, penalty="r1", recompute=True)) <= TOLERANCE


@pytest.mark.parametrize(("norm", "micro_batches"), [("batch", 1), ("instance", 3)])
def test_pipeline_relays_the_maps_of_a_u_net(two_ranks, norm, micro_batches):
    assert max(two_ranks.run(f"{CASES}:u_net", norm=norm, micro_batches=micro_batches)) <= TOLERANCE


@pytest.mark.parametrize("data", ["zero3", slow("ddp")])
def test_pipelines_with_fewer_rows_than_micro_batches_are_the_batch(four_ranks, data):
    """Copies of a block communicate, so both pipelines must run it equally often."""
    assert max(four_ranks.run(f"{CASES}:few_rows", data=data, counts=(2, 1, 1, 1))) <= TOLERANCE


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("dict", "a block returned a dict"),
        ("none", "a block takes and returns one row per sample, not shapes []"),
        ("scalar", "not shapes [(4, 4), ()] for 4 samples"),
        ("other rows", "one row per sample, not shapes [(2, 4)] for 4 samples"),
        ("input without rows", "a block takes and returns one row per sample"),
        ("labels of another batch", "further arguments of a block are None, or tensors of one"),
        ("no weights", "rank 1 has no weight to train: none is in blocks 1 of Strange"),
        ("frozen", "rank 1 has no weight to train"),
    ],
)
def test_pipeline_network_that_cannot_be_run_is_refused_on_all_ranks(two_ranks, fault, message):
    assert all(message in said for said in two_ranks.run(f"{CASES}:faulty", fault=fault))


@pytest.mark.parametrize(("what", "named"), [("a weight", "blocks.1"), ("the average", "gamma")])
def test_pipeline_copies_that_differ_are_named(four_ranks, what, named):
    """Rank 3 has the second stage of the second pipeline, rank 1 the other copy."""
    for said in four_ranks.run(f"{CASES}:differ", what=what):
        assert f"{named}" in said and "differs between ranks" in said


def test_pipeline_rank_that_does_not_answer_is_waited_for_in_vain(two_ranks):
    waiting, _ = two_ranks.run(f"{CASES}:silent")
    assert waiting.startswith("pipeline: a rank did not send or receive its rows")


@pytest.mark.parametrize("data", ["ddp", "zero1", "zero3"])
def test_pipeline_weight_that_some_ranks_reach_has_its_gradient_on_all(two_ranks, data):
    for rank, (names, gradient, stepped) in enumerate(two_ranks.run(f"{CASES}_weights:partly_reached", data=data)):
        assert names == [f"blocks.{rank}.bias", f"blocks.{rank}.weight", "extra.bias", "extra.weight"]
        assert gradient == stepped == 5.0  # of five rows


def test_pipeline_balancer_of_a_layer_is_refused(two_ranks):
    for said in two_ranks.run(f"{CASES}:balancer_layer"):
        assert said.startswith("balancer.last_layer=blocks.0.layer") and "strategy pipeline" in said


def test_pipeline_bytes_are_counted_and_inputs_without_gradient_have_no_backward(two_ranks):
    """Two rows per rank of four float64 numbers, two blocks: what each rank sends to the other."""
    row = 4 * 8
    chunks = 4 * row  # all rows between the blocks, and back their gradients
    own = 2 * row  # rows of one rank: those of rank 1 go to the first block, those of rank 0 come from the last
    assert two_ranks.run(f"{CASES}_weights:sent_bytes", is_input_trained=False) == [chunks + own, 2 * own + chunks]
    assert two_ranks.run(f"{CASES}_weights:sent_bytes", is_input_trained=True) == [chunks + 2 * own, 2 * own + chunks]


def test_pipeline_ranks_have_only_their_blocks(two_ranks):
    """And what is outside of blocks, a layer of `width` weights."""
    case = "tests.distributed.cases_memory:held"
    whole = two_ranks.run(case, timeout=240, name="ddp", width=300)[0]
    found = two_ranks.run(case, timeout=240, name="pipeline", width=300)
    for kind in ("weights", "optimizer", "average"):
        assert whole[kind] <= sum(held[kind] for held in found) <= 1.06 * whole[kind]
        assert max(held[kind] for held in found) <= 0.72 * whole[kind]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("g.strategy=pipeline", "d.strategy=pipeline"),
        ("g.strategy=pipeline", "d.strategy=tensor", "d.strategy.rows=10"),
    ],
    ids=["pipeline", "tensor"],
)
def test_run_resumes_anywhere_and_exports(tmp_path, words):
    """A run that stops ends as one that does not: on its ranks bit for bit, in one process to rounding."""
    resumes_and_exports(tmp_path, words)
    samples = [paragan.load(tmp_path / name).sample(2, seed=0).tensor for name in ("on-2", "g.safetensors")]
    assert torch.equal(*samples)
