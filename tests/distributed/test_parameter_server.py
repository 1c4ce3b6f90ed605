"""Law: a server without delay is the plain game. And with delay: the bound, the rates, who is gone, checkpoints."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from paragan.augment import ada
from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.dist import ALONE, World
from paragan.core.errors import ConfigError
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.extensions.parameter_server.schemes.parameter_server import Scheme
from paragan.game.network import Calling
from paragan.parallel import none
from paragan.penalties import contrastive, lecam
from tests.distributed import cases_parameter_server as cases
from tests.laws.small_gan import BATCH, game, player
from tests.marks import slow
from tests.tiny_run import train

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_parameter_server"
TOLERANCE = 1e-10


@pytest.mark.parametrize("k", [1, 2])
def test_one_worker_without_delay_is_synchronous_bit_for_bit(two_ranks, k):
    assert two_ranks.run(f"{CASES}:no_delay", k=k) == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("k", [1, 2])
def test_workers_without_delay_are_the_whole_batch(three_ranks, four_ranks, k):
    """Shares of 4 and 4, and of 2, 3 and 3 rows: one update by all of them, clipped by the norm of all."""
    for pool in (three_ranks, four_ranks):
        found = pool.run(f"{CASES}:no_delay", k=k)
        assert all(weights <= TOLERANCE and told < 1e-5 for weights, told in found), found


@pytest.mark.parametrize(
    ("bound", "k", "steps"),
    [(1, 1, 100), *(pytest.param(*given, marks=pytest.mark.slow) for given in ((3, 1, 150), (1, 2, 100)))],
)
def test_the_bound_is_kept_under_random_delays(three_ranks, bound, k, steps):
    workers = 2
    server, *others = three_ranks.run(f"{CASES}:bounded", bound=bound, steps=steps, k=k, timeout=200)
    clock, (ages, ahead, counts) = server[:2], server[2:]
    assert clock == [steps, steps * k * BATCH]
    assert max(map(int, ages)) == max(map(int, ahead)) == bound, (ages, ahead)
    assert sum(ages.values()) == sum(ahead.values()) == workers * steps * (k + 1)  # every gradient, once
    updates = [workers * steps * k, workers * steps]  # of D and G; so many times more of fewer images
    assert counts == [[n, images, n] for n, images in zip(updates, (steps * k * BATCH, steps * BATCH), strict=True)]
    for *mine, lags, waited in others:
        assert mine == clock and waited > 0
        assert max(int(lag) for of_side in lags.values() for lag in of_side) == bound, lags


def test_an_update_of_one_worker_is_by_the_mean_of_its_rows(three_ranks):
    server, *_ = three_ranks.run(f"{CASES}:one_by_one")
    assert server <= 1e-12


@pytest.mark.parametrize("bound", [0, slow(2)])
def test_who_waits_for_a_worker_that_plays_no_more_ends(three_ranks, bound):
    server, worker, _ = three_ranks.run(f"{CASES}:silent", bound=bound)
    assert server == "RankError: the worker on rank 2 has sent no gradients for 1 s"
    assert worker == "RankError: the server on rank 0 has sent no weights for 2 s"


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize("rank", [0, 2])
def test_killed_rank_ends_the_others_with_one_line(three_ranks, tmp_path, rank):
    with pytest.raises(AssertionError, match=f"rank {rank} of 3.*died with exit code -9"):
        three_ranks.run(f"{CASES}:killed", folder=str(tmp_path), rank=rank)
    said = {path.name: path.read_text() for path in tmp_path.iterdir()}
    gone = {0: "the server on rank 0 is unreachable", 2: "the worker on rank 2 is unreachable"}[rank]
    neighbour = {0: "rank-1", 2: "rank-0"}[rank]
    assert said[neighbour].startswith(f"RankError: {gone}: ") and "\n" not in said[neighbour], said


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    found = CheckpointWriter(folder=folder / "checkpoints").newest()
    return {f"{group}/{name}": value for group, stored in found.groups.items() for name, value in stored.items()}


@pytest.mark.slow
def test_the_server_saves_and_a_stop_is_not_seen(three_ranks, tmp_path):
    """Of 4 steps, stopped after 2, without delay; and the server alone holds players."""
    words, stopped, straight = ["scheme.staleness=0"], tmp_path / "stopped", tmp_path / "straight"
    run = f"{CASES}:a_run"
    three_ranks.run(run, timeout=200, folder=str(stopped), words=[*words, "train.kimg=0.032"])
    found = three_ranks.run(run, timeout=200, folder=str(stopped), words=words)
    assert found == [
        [True, [4], ["d", "g"], [True, True], [4, 64, 4]],
        *([[True, [4], [], [False, False], [4, 64, 4]]] * 2),
    ]
    names = {path.name for path in (stopped / "checkpoints" / "step-000000004").iterdir()}
    assert names == {"g.safetensors", "d.safetensors", "state.json", "manifest.json"}
    three_ranks.run(run, timeout=200, folder=str(straight), words=words)
    a, b = tensors(stopped), tensors(straight)
    assert a.keys() == b.keys() and all(value.equal(b[name]) for name, value in a.items())


def test_any_number_of_ranks_resumes(three_ranks, two_ranks, tmp_path):
    """Saved by a server of two; gone on with by one of one, then by a process alone; with a delay."""
    run = f"{CASES}:a_run"
    three_ranks.run(run, timeout=200, folder=str(tmp_path), words=["train.kimg=0.032"])
    found = two_ranks.run(run, timeout=200, folder=str(tmp_path), words=["train.kimg=0.064"])
    assert [(of_rank[0], of_rank[-1]) for of_rank in found] == [(True, [4, 64, 4])] * 2
    resumed, saved, players, _, clock = cases.a_run(World(), str(tmp_path), ["train.kimg=0.096"])
    assert (resumed, saved, players, clock) == (True, [6], ["d", "g"], [6, 96, 6])


def test_a_run_without_delay_is_that_of_one_process(three_ranks, tmp_path):
    """In float32, with plain SGD: Adam makes whole steps of gradients that are rounding. Clipped by the whole norm."""
    words = ["scheme.staleness=0", "model.name=mlp", "model.g_widths=[32]", "model.d_widths=[32]"]
    words += [f"{side}.optimizer={{name: SGD, lr: 0.1}}" for side in "gd"] + ["g.max_norm=0.05", "d.max_norm=0.05"]
    three_ranks.run(f"{CASES}:a_run", timeout=200, folder=str(tmp_path / "served"), words=words)
    cases.a_run(World(), str(tmp_path / "alone"), words)
    served, alone = tensors(tmp_path / "served"), tensors(tmp_path / "alone")
    assert served.keys() == alone.keys()
    worst = max(float((value - alone[name]).abs().max()) for name, value in served.items())
    assert worst <= 1e-6, worst


@pytest.mark.parametrize("k", [1, 2])
def test_recorded_bytes_are_a_gradient_and_a_state_for_each_turn_of_each_worker(three_ranks, tmp_path, k):
    """Besides the heads: 24 bytes of each message, and a byte of each tensor with gradients, whether it has one."""
    words = ["scheme.staleness=0", f"d.updates_per_step={k}"]
    found = three_ranks.run(f"{CASES}:recorded_traffic", timeout=200, folder=str(tmp_path), words=words)
    (lines, sizes), *_ = found
    workers, tensors = 2, {name: number for name, (_, number) in sizes.items()}
    states = 2 * workers * (k * sizes["d"][0] + sizes["g"][0])
    heads = workers * (2 * 24 * (k + 1) + k * tensors["d"] + tensors["g"])
    counted = [links["parameters"] for step, links in lines if step > 1]  # the first step begins with all weights
    assert len(counted) >= 1 and counted == [states + heads] * len(counted)


def test_one_process_is_the_synchronous_run(tmp_path):
    served, plain = (train(tmp_path / name, f"scheme.name={name}") for name in ("parameter_server", "synchronous"))
    for name, mine in served.players.items():
        theirs = plain.players[name].net.state_dict()
        assert all(value.equal(theirs[key]) for key, value in mine.net.state_dict().items())


def test_what_compares_a_batch_that_is_dealt_is_refused():
    scheme, plain = Scheme(), game(*(player(side, none.Strategy()) for side in Side))
    compared = replace(plain, d_penalties=(contrastive.Penalty(contrastive.Options()),))
    averaged = replace(plain, loss=replace(plain.loss, compares=True))
    for workers in (1, 2):
        scheme._roles = Roles(world=World(size=workers + 1), batch_world=ALONE, ranks={side: range(1) for side in Side})
        scheme.refuse(plain, {})
        for gan, found in ((compared, "contrastive"), (averaged, "the loss")):
            with (
                pytest.raises(ConfigError, match=f"{found} .* scheme parameter_server")
                if workers > 1
                else nullcontext()
            ):
                scheme.refuse(gan, {})


def test_state_of_terms_and_of_the_augmentation_is_refused_by_a_server():
    scheme, plain = Scheme(), game(*(player(side, none.Strategy()) for side in Side))
    averaging = replace(plain, d_penalties=(lecam.Penalty(lecam.Options()),))
    adapting = replace(plain, augment=ada.Augment(ada.Options()))
    for gan, what in ((averaging, "penalty lecam"), (adapting, "augmentation ada")):
        scheme._roles = None
        scheme.refuse(gan, {})  # a process alone
        scheme._roles = Roles(world=World(size=2), batch_world=ALONE, ranks={side: range(1) for side in Side})
        with pytest.raises(ConfigError, match=rf"{what} needs state of .* scheme parameter_server"):
            scheme.refuse(gan, {})


def test_a_loss_scale_is_refused():
    scheme = Scheme()
    gan = game(*(player(side, none.Strategy()) for side in Side))
    gan.g.calling = Calling(torch.float16, scaled=True)
    scheme.refuse(gan, {})  # a process alone
    scheme._roles = Roles(world=World(size=3), batch_world=ALONE, ranks={side: range(1) for side in Side})
    with pytest.raises(ConfigError, match=r"g.precision=fp16 .* scheme parameter_server"):
        scheme.refuse(gan, {})
