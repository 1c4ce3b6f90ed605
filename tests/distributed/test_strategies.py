"""What strategies send, hold and do beside the laws."""

import pytest

from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_strategies"
CORNERS = "tests.distributed.cases_corners"


def payload(pool, name="ddp", options=None, parts=1, total=20):
    return pool.run(f"{CASES}:payload", name=name, options=options or {}, parts=parts, total=total)


def test_every_other_update_sends_half(two_ranks):
    for every_update, every_other in zip(
        payload(two_ranks), payload(two_ranks, "local_sgd", {"every": 2}), strict=True
    ):
        assert every_other["parameters"] == every_update["parameters"] / 2 > 0
        assert every_update["norm"] > 0


def test_accumulation_of_four_sends_a_quarter(two_ranks):
    one, four = payload(two_ranks)[0], payload(two_ranks, parts=4, total=80)[0]
    assert four["parameters"] == one["parameters"] / 4
    assert four["reduced"] == four["parameters"]  # what is counted is what torch's reducer was given
    assert one["reduced"] == one["parameters"]


def test_averaging_every_update_is_one_process(two_ranks):
    assert max(two_ranks.run(f"{CASES}:averaged_every_update")) <= 1e-12


@pytest.mark.parametrize(("name", "gathers"), [("zero2", 1), ("zero3", 2)])
def test_collectives_of_sharded_weights_are_counted(two_ranks, name, gathers):
    """Shards at every all-gather (zero3: again in the backward), whole gradients at one reduce-scatter."""
    for found in two_ranks.run(f"{CASES}:sharded_traffic", name=name):
        shards, scalars = found["sizes"]
        assert found["sent"] == gathers * shards + 2 * shards + scalars
        # on links: N - 1 times a shard for either, 2 (N - 1) / N of what is all-reduced
        assert found["links"] == gathers * shards + shards + scalars


def test_synchronized_gradients_are_those_of_a_plain_loop(two_ranks):
    """Every second update by the mean gradient, every fourth followed by mean weights; ranks are equal only then."""
    found = two_ranks.run(f"{CASES}:synchronized_gradients", every=2, average_every=4, steps=7)
    for difference, spread in found:
        assert difference <= 1e-12
        assert [value <= 1e-12 for value in spread] == [False, False, False, True, False, False, False]


def test_synchronized_gradients_send_as_many_bytes_as_averaged_weights(two_ranks):
    options = {"every": 2, "synchronize": "gradients"}  # no averaging in 4 steps
    weights, gradients = payload(two_ranks, "local_sgd", {"every": 2}), payload(two_ranks, "local_sgd", options)
    for a, b in zip(weights, gradients, strict=True):
        assert b["parameters"] == a["parameters"]


@pytest.mark.parametrize("narrow", [False, True], ids=["fp32", "bf16"])
def test_ranks_meet_every_other_update(two_ranks, narrow):
    assert two_ranks.run(f"{CASES}:apart_and_together", narrow=narrow) == [[False, True, False, True]] * 2


def test_averaged_vectors_of_spectral_norm_stay_unit_vectors(two_ranks):
    assert max(two_ranks.run(f"{CASES}:unit_vectors")) <= 1e-12


@pytest.mark.parametrize("name", ["none", slow("ddp"), "zero3"])
def test_recomputation_changes_nothing(request, name):
    pool = request.getfixturevalue("one_rank" if name == "none" else "two_ranks")
    for difference, moved, again in pool.run(f"{CASES}:recomputed", name=name):
        assert difference <= 1e-12
        assert moved > 1e-3
        assert again >= 2 * 2 * 3  # both turns, both parts, three steps


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero3"])
def test_narrow_reductions_lose_what_bf16_loses(two_ranks, name):
    for away in two_ranks.run(f"{CASES}:narrow", name=name):
        assert 1e-4 < away < 2e-2


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_a_layer_that_nothing_uses(two_ranks, name):
    for difference, moved in two_ranks.run(f"{CASES}:unreached", name=name):
        assert difference <= 1e-12
        assert not moved


@pytest.mark.parametrize(("width", "least"), [(900, 5e6), slow(2400, 40e6)])
def test_memory_of_a_rank(two_ranks, width, least):
    held = {
        name: two_ranks.run("tests.distributed.cases_memory:held", timeout=240, name=name, width=width)[0]
        for name in ("ddp", "zero1", "zero3")
    }
    whole = held["ddp"]
    assert whole["total"] >= least
    assert whole["weights"] == 4 * whole["total"]
    assert held["zero1"]["optimizer"] <= 0.52 * whole["optimizer"]
    mine = held["zero3"]["weights"] + held["zero3"]["optimizer"]
    assert mine <= 0.55 * (whole["weights"] + whole["optimizer"])
    for name in ("zero1", "zero3"):
        assert held[name]["average"] <= 0.52 * whole["average"]


@pytest.mark.parametrize("name", ["none", "ddp", slow("zero1"), "local_sgd"])
def test_pure_holds_weights_low_and_steps_them_in_full(request, name):
    pool = request.getfixturevalue("one_rank" if name == "none" else "two_ranks")
    for formats, away in pool.run(f"{CORNERS}:pure", name=name):
        assert formats == ["torch.bfloat16", "torch.float32", "torch.float32"]  # norms keep float32
        assert away < 0.4


def test_a_skip_on_one_rank_does_not_part_the_ranks(two_ranks):
    assert two_ranks.run(f"{CORNERS}:skipped_on_one_rank") == [[True] * 5] * 2


@pytest.mark.parametrize("every", [1, 2])
def test_norms_of_torch_pass_the_comparison_of_ranks_under_local_sgd(two_ranks, every):
    assert two_ranks.run(f"{CORNERS}:foreign_norms", every=every) == [True, True]


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_tied_weights_and_no_buffers(two_ranks, name):
    assert max(two_ranks.run(f"{CORNERS}:tied", name=name)) <= 1e-12


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_an_overflow_in_the_rows_of_one_rank_is_skipped_by_all(two_ranks, name):
    """huggingface/accelerate #174: a scaler that looks at its own piece would skip on that rank alone."""
    for *found, moved in two_ranks.run(f"{CORNERS}:overflow_in_a_piece", name=name):
        assert found == [0.0, 4.0, 2]
        assert moved > 1e-3


def test_groups_of_hybrid_sharding_are_as_patient_as_the_world(four_ranks):
    for world, *others in four_ranks.run(f"{CORNERS}:patience"):
        assert others == [world, world]


def test_groups_of_hybrid_sharding_are_made_once(four_ranks):
    """Each has connections and threads: a hundred networks on four ranks brought a machine to a load of 300."""
    for first, *others in four_ranks.run(f"{CORNERS}:groups"):
        assert others == [first, first]


@pytest.mark.parametrize("name", [*map(slow, ("ddp", "zero1", "zero2", "hsdp")), "zero3", "local_sgd"])
def test_a_whole_run(two_ranks, tmp_path, name):
    words = [f"g.strategy={name}", f"d.strategy={name}", "train.kimg=0.016", "train.batch=8", "every.sample_kimg=0.008"]
    words += ["evaluation.features=judge", "evaluation.num_images=300"] if name == "zero3" else []
    told = two_ranks.run(f"{CORNERS}:whole_run", folder=str(tmp_path), words=words)
    assert told[0] == told[1]
    assert told[0].count("step") == 2
    assert set(told[0]) - {"score"} == {"start", "samples", "telemetry", "step", "traffic", "phases", "checkpoint"}
    assert ("score" in told[0]) == (name == "zero3")
