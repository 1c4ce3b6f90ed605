"""Any number of ranks under any strategy writes what any other reads; a rank that fails leaves no half checkpoint."""

import json
import os

import pytest

from paragan.core.dist import ALONE
from tests.distributed import cases_checkpoints as cases
from tests.marks import slow

CASES = "tests.distributed.cases_checkpoints"
PAIR = [[[float(2 * n), float(2 * n + 1)] for n in range(6)]]

pytestmark = pytest.mark.distributed

READERS = {2: ("zero2", "zero1"), 3: ("zero1", "zero3"), 4: ("hsdp", "ddp")}
BY_DAY = {("zero3", "zero1"): (2, 3), ("zero1", "ddp"): (4,)}  # each reader once
WRITERS = [
    *((*writer, sizes) for writer, sizes in BY_DAY.items()),
    *(slow(*writer, tuple(READERS)) for writer in [*BY_DAY, ("ddp", "zero2")]),
]


@pytest.fixture
def pools(two_ranks, three_ranks, four_ranks):
    return {2: two_ranks, 3: three_ranks, 4: four_ranks}


@pytest.mark.parametrize(("g", "d", "sizes"), WRITERS)
def test_what_two_ranks_save_any_number_resumes_under_another_strategy(tmp_path, pools, g, d, sizes):
    names, _ = pools[2].run(f"{CASES}:save", folder=str(tmp_path), g=g, d=d)
    whole, cut = ["{}.safetensors"], ["{}.0-of-2.safetensors", "{}.1-of-2.safetensors"]
    expected = [name.format(p) for p, s in (("g", g), ("d", d)) for name in (whole if s == "ddp" else cut)]
    assert names == sorted([*expected, "manifest.json", "state.json"])
    for size in sizes:
        other_g, other_d = READERS[size]
        differences = pools[size].run(f"{CASES}:go_on", folder=str(tmp_path), g=other_g, d=other_d)
        assert max(differences) <= 1e-10, (size, other_g, other_d)
    assert cases.go_on(ALONE, str(tmp_path), "none", "none") <= 1e-10


@pytest.mark.parametrize(
    ("size", "g", "d", "pieces"), [(4, "hsdp", "zero3", (2, 4)), slow(3, "zero2", "zero1", (3, 3))]
)
def test_what_others_save_two_ranks_resume(tmp_path, pools, size, g, d, pieces):
    names, *_ = pools[size].run(f"{CASES}:save", folder=str(tmp_path), g=g, d=d)
    assert tuple(sum(name.startswith(player) for name in names) for player in ("g.", "d.")) == pieces
    assert max(pools[2].run(f"{CASES}:go_on", folder=str(tmp_path), g="zero3", d="ddp")) <= 1e-10


def test_what_one_process_saves_ranks_resume(tmp_path, two_ranks):
    cases.save(ALONE, str(tmp_path), "none", "none")
    assert max(two_ranks.run(f"{CASES}:go_on", folder=str(tmp_path), g="zero1", d="zero3")) <= 1e-10


def test_ranks_on_their_own_ways_go_on_bit_for_bit(tmp_path, two_ranks, three_ranks):
    case = "tests.distributed.cases_checkpoints:stopped_and_not"
    assert two_ranks.run(case, folder=str(tmp_path), steps=3, g="local_sgd", d="local_sgd") == [True, True]
    go_on = "tests.distributed.cases_checkpoints:go_on"
    assert max(three_ranks.run(go_on, folder=str(tmp_path), g="ddp", d="local_sgd")) < 1  # another number of ranks can


@pytest.mark.parametrize(
    ("g", "d"),
    [
        ("zero1", "ddp"),
        pytest.param("zero2", "zero3", marks=pytest.mark.slow),
        pytest.param("hsdp", "hsdp", marks=pytest.mark.slow),
    ],
)
def test_a_resume_on_many_ranks_is_exact(tmp_path, pools, g, d):
    """Sums of three or more numbers depend on their order, which a new session must not change."""
    ranks = pools[4 if g == "hsdp" else 3]
    case = "tests.distributed.cases_checkpoints:stopped_and_not"
    assert all(ranks.run(case, folder=str(tmp_path), steps=3, g=g, d=d))


def test_later_pieces_may_be_empty(tmp_path, four_ranks):
    four_ranks.run(f"{CASES}:save_held", folder=str(tmp_path), step=3)  # 6 rows: 2, 2, 2, 0
    assert cases.read_held(ALONE, str(tmp_path)) == [3, {"step": 3}, *PAIR, 3.0, 0]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dim", [0, 1])
def test_layout_of_a_sharded_tensor_is_its_shard(pools, size, dim):
    assert all(pools[size].run(f"{CASES}:layout_is_the_shard", shape=[5, 7], dim=dim))


@pytest.mark.parametrize("rank", [0, 1])
def test_full_disk_on_one_rank_raises_on_all_and_leaves_no_file(tmp_path, two_ranks, rank):
    folder = str(tmp_path)
    two_ranks.run(f"{CASES}:save_held", folder=folder, step=1)
    told = two_ranks.run(f"{CASES}:full_disk", folder=folder, rank=rank, step=2)
    assert told[0] == told[1]
    assert f"rank {rank}: no space left on the device; earlier checkpoints are intact" in told[0]
    assert os.listdir(tmp_path) == ["step-000000001"]
    two_ranks.run(f"{CASES}:save_held", folder=folder, step=2)
    assert [found[0] for found in two_ranks.run(f"{CASES}:read_held", folder=folder)] == [2, 2]


def test_hosts_without_a_common_file_system_get_one_line(tmp_path, two_ranks):
    told = two_ranks.run(f"{CASES}:one_unseen", folder=str(tmp_path), rank=1)
    assert all("rank 1: " in line and "all hosts need a shared file system" in line for line in told)
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_in_a_save_leaves_no_finished_checkpoint(tmp_path, two_ranks, rank):
    folder = str(tmp_path)
    two_ranks.run(f"{CASES}:save_held", folder=folder, step=1)
    with pytest.raises(AssertionError, match="died with exit code -9"):
        two_ranks.run(f"{CASES}:killed_in_a_save", folder=folder, rank=rank)
    assert [found[0] for found in two_ranks.run(f"{CASES}:read_held", folder=folder)] == [1, 1]
    two_ranks.run(f"{CASES}:save_held", folder=folder, step=3)
    assert sorted(os.listdir(tmp_path)) == ["step-000000001", "step-000000003"]  # no debris


def test_a_damaged_piece_is_passed_over_by_all_as_rank_0_sees_it(tmp_path, two_ranks):
    folder = str(tmp_path)
    for step in (1, 2):
        two_ranks.run(f"{CASES}:save_held", folder=folder, step=step)
    piece = tmp_path / "step-000000002" / "g.1-of-2.safetensors"
    piece.write_bytes(piece.read_bytes()[:-1] + b"?")
    found = two_ranks.run(f"{CASES}:read_held", folder=folder)
    assert found == [[1, {"step": 1}, *PAIR, 1.0, 1], [1, {"step": 1}, *PAIR, 1.0, 0]]


def test_a_piece_that_is_not_finite_is_refused_by_all(tmp_path, two_ranks):
    told = two_ranks.run(f"{CASES}:diverged", folder=str(tmp_path), rank=1)
    assert told[0] == told[1]
    assert told[0][0] == "DivergedError" and "g: net/" in told[0][1]
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("a bit", "d: blocks.1.layer.parametrizations.weight.original"),
        ("places", "g: embed.weight"),
        ("a buffer", "d: blocks.0.norm.norm.mean"),
        ("the average", "g: average: gamma"),
        ("the rate", "g: learning rate"),
        ("the clock", "clock: images"),
    ],
)
def test_a_rank_that_has_something_else_is_named(three_ranks, what, told):
    said = three_ranks.run(f"{CASES}:differ", what=what, rank=2, g="ddp", d="ddp")
    assert len(set(said)) == 1
    assert said[0].startswith(f"75 step 2: {told} differs between ranks 0 and 2: ")


def test_pieces_are_no_other_ranks_business(two_ranks):
    assert two_ranks.run(f"{CASES}:differ", what="nothing", rank=1, g="zero1", d="zero3") == ["equal", "equal"]


def test_the_best_is_rank_0s_and_survives_pruning_and_resume(tmp_path, two_ranks):
    """Scores at steps 0, 1, 2, 3 and at the end, 4; checkpoints at 2 and 4, at others only where they are best."""
    words = ["g.strategy=zero3", "d.strategy=zero1", "every.keep=1"]
    found = two_ranks.run(f"{CASES}:run", folder=str(tmp_path), words=words, scores=[0.1, 5.0, 4.0, 3.0, 3.5])
    assert found == [[[1, 2, 3, 4], 4, 4]] * 2
    told = json.loads((tmp_path / "best" / "score.json").read_text())
    assert (told["step"], told["value"], told["protocol"]) == (3, 3.0, {"by": "hand"})
    longer = [*words, "train.kimg=0.096"]
    two_ranks.run(f"{CASES}:run", folder=str(tmp_path), words=longer, scores=[3.2, 9.0])
    assert json.loads((tmp_path / "best" / "score.json").read_text())["step"] == 3
    assert json.loads((tmp_path / "best" / "state.json").read_text())["step"] == 3
    assert max(path.name for path in (tmp_path / "checkpoints").iterdir()) == "step-000000006"


def test_a_copy_of_a_piece_that_drifts_is_named(four_ranks):
    arguments = {"what": "a piece", "rank": 3, "g": "hsdp", "d": "hsdp"}
    for told in four_ranks.run("tests.distributed.cases_checkpoints:differ", **arguments):
        assert "weight.original (piece at (12, 0) of several) differs between ranks 1 and 3" in told
