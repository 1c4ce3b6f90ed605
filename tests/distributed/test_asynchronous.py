"""Law: no delay is synchrony, on ranks of either player. And with delay: the bound, odd shapes, bytes, memory."""

import pytest

from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_asynchronous"
TOLERANCE = 1e-10


@pytest.mark.parametrize(("reuse", "k"), [(False, 1), (False, 2), (True, 1)])
def test_no_delay_is_synchrony_bit_for_bit_on_one_and_one(two_ranks, reuse, k):
    assert two_ranks.run(f"{CASES}:no_delay", num_g=1, reuse=reuse, k=k) == [["g", 0.0, True], ["d", 0.0, True]]


@pytest.mark.parametrize("name", ["ddp", slow("zero1"), "zero3"])
@pytest.mark.parametrize("reuse", [False, True])
def test_no_delay_is_synchrony_on_two_and_two(four_ranks, reuse, name):
    found = four_ranks.run(f"{CASES}:no_delay", num_g=2, reuse=reuse, name=name)
    assert [side for side, _, _ in found] == ["g", "g", "d", "d"]
    assert all(difference <= TOLERANCE and told for _, difference, told in found), found


@pytest.mark.parametrize(("name", "reuse"), [("ddp", True), ("ddp", False), ("zero3", True)])
def test_no_delay_is_synchrony_on_paired_ranks(four_ranks, reuse, name):
    found = four_ranks.run(f"{CASES}:no_delay", num_g=2, reuse=reuse, name=name, placement="paired")
    assert [side for side, _, _ in found] == ["g", "d", "g", "d"]
    assert all(difference <= TOLERANCE and told for _, difference, told in found), found


@pytest.mark.parametrize("sends_fakes", [False, True])
@pytest.mark.parametrize("num_g", [1, 2])
def test_no_delay_is_synchrony_on_any_ratio(three_ranks, num_g, sends_fakes):
    found = three_ranks.run(f"{CASES}:no_delay", num_g=num_g, reuse=False, k=2, sends_fakes=sends_fakes)
    assert [side for side, _, _ in found] == ["g"] * num_g + ["d"] * (3 - num_g)
    assert all(difference <= TOLERANCE and told for _, difference, told in found), found


@pytest.mark.parametrize("steps", [120, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bound", [slow(1), 3])
def test_the_bound_is_kept_under_random_delays(two_ranks, bound, steps):
    """Of G's opponent, and it is reached; D's images are those of the newest G."""
    found = two_ranks.run(f"{CASES}:bounded", num_g=1, bound=bound, steps=steps, timeout=200)
    for (side, lags, versions, waited), oldest in zip(found, (bound, 0), strict=True):
        assert max(map(int, lags)) == oldest and versions == [steps, steps] and waited > 0, (side, lags)


@pytest.mark.parametrize("bound", [slow(1), 3])
def test_the_bound_is_kept_by_two_and_two(four_ranks, bound):
    found = four_ranks.run(f"{CASES}:bounded", num_g=2, bound=bound, steps=40, timeout=200)
    assert all(max(map(int, lags)) <= bound and versions == [40, 40] for _, lags, versions, _ in found), found


@pytest.mark.parametrize(("name", "state_dtype"), [("ddp", "bf16"), ("zero3", "bf16"), ("local_sgd", "exact")])
def test_opponent_after_a_pause_is_d(four_ranks, name, state_dtype):
    """G's opponent is at most two steps old, and D itself after a pause."""
    chosen = {"staleness": 2, "state_dtype": state_dtype, "placement": "paired"}
    found = four_ranks.run(f"{CASES}:paused", steps=9, name=name, **chosen)
    assert [side for side, *_ in found] == ["g", "d", "g", "d"]
    (_, _, _, state), *_ = [one for one in found if one[0] == "d"]
    for side, lags, used, total in found:
        if side == "g":
            assert set(lags) <= {0, 1, 2} and len(used) == 9
            assert total == pytest.approx(state, abs=1e-12) or name == "local_sgd"  # its ranks differ


@pytest.mark.parametrize(
    ("name", "alarmed"),
    [
        ("ddp", "d"),
        ("zero3", "g"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("ddp", "g"), ("zero3", "d"))),
    ],
)
def test_ranks_fall_back_to_lock_step(four_ranks, name, alarmed):
    chosen = {"staleness": 3, "state_dtype": "bf16"}
    found = four_ranks.run(f"{CASES}:falls_back", steps=15, name=name, alarmed=alarmed, **chosen)
    assert found == [[side, True, 0, 16] for side in ("g", "g", "d", "d")], found


@pytest.mark.parametrize(
    ("chosen", "is_rounded"), [({}, False), ({"state_dtype": "bf16", "fakes_dtype": "bf16"}, True)]
)
def test_links_count_every_byte(four_ranks, chosen, is_rounded):
    """A head of 24 bytes and the data: D's state, or images of 8x8 in float64 with labels and 5 sizes."""
    found = four_ranks.run(f"{CASES}:traffic", steps=8, **chosen)
    for side, counted, (num_bytes, numbers), num_counts in found:
        assert num_counts == 0
        message = 2 * numbers if is_rounded else num_bytes
        rows = 4 * (64 * (2 if is_rounded else 8) + 8) + 5 * 8
        expected = {"g": {"states": 0, "fakes": 8 * (24 + rows)}, "d": {"states": 8 * (24 + message), "fakes": 0}}
        assert counted == expected[side], (counted, expected)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("scheme.staleness=0", "scheme.placement=paired"), marks=pytest.mark.slow),
        ("scheme.staleness=0", "scheme.placement=paired", "scheme.state_dtype=bf16", "scheme.fakes_dtype=bf16"),
    ],
)
def test_a_resumed_run_on_paired_ranks_is_the_run_that_did_not_stop(four_ranks, tmp_path, words):
    """Bit for bit without delays, also by differences: a checkpoint finds G with D's exact state."""
    words = ["every.save_kimg=0.032", *words]
    found = four_ranks.run(f"{CASES}:resumed", timeout=200, folder=str(tmp_path), words=words)
    assert found == [[["g"], True, 0.0], [["d"], True, 0.0]] * 2, found


@pytest.mark.parametrize(("num_g", "g_batch"), [(1, 16), (1, 5), (2, 3)])
def test_batches_of_any_two_sizes(three_ranks, num_g, g_batch):
    """G's images are cut over D's ranks, come again where they are too few, and are left where they are too many."""
    found = three_ranks.run(f"{CASES}:odd_batches", num_g=num_g, g_batch=g_batch)
    for side, moved, version, images in found:
        assert moved > 1e-4
        assert (version, images) == ((4, 4 * g_batch) if side == "g" else (8, 8 * 8))


def test_who_waits_for_one_that_never_answers_ends(two_ranks):
    said, _ = two_ranks.run(f"{CASES}:stuck")
    assert said.startswith("RankError: no message from D for 2 s") or said.startswith("RankError: rank"), said


def test_a_rank_of_a_run_holds_one_player(two_ranks, tmp_path):
    words = ["every.save_kimg=0.032"]
    (saved, of_g, step), (_, of_d, _) = two_ranks.run(
        f"{CASES}:parts_of_a_run", timeout=200, folder=str(tmp_path), words=words
    )
    assert (saved, step) == ([2, 4], 4)
    assert set(of_g) == {"g"} and set(of_d) == {"d"} and of_g["g"] > 0 and of_d["d"] > 0
    names = {path.name for path in (tmp_path / "checkpoints" / "step-000000004").iterdir()}
    assert {"g.safetensors", "d.safetensors"} <= names


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_is_flat_over_2000_steps(two_ranks):
    for early, late in two_ranks.run(f"{CASES}:memory", num_g=1, steps=2000, timeout=600):
        assert late - early < 8, (early, late)  # MB; a message held back each step would be 12 KB times 1,800
