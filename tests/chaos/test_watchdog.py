"""A rank that stops or hangs: all stacks, one line, and a restart that ends with the weights of an undisturbed run."""

import random
import re

import pytest

from paragan.checkpoint.writer import CheckpointWriter
from tests.distributed.test_launch import left, train
from tests.hanging_loss import HANGING_LOSS

pytestmark = [pytest.mark.distributed, pytest.mark.chaos]
WORDS = ("train.kimg=0.8", "train.watchdog_s=2", "loss.name=strange.py")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The tensors of an undisturbed run on two ranks."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "strange.py").write_text(HANGING_LOSS)
    process = train(folder / "run", *WORDS, "--trust")
    said, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, said + complaints
    assert not (folder / "run" / "stacks").exists()
    return CheckpointWriter(folder=folder / "run" / "checkpoints").newest()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("stop", 0), ("stop", 1), ("1000", 2)])
def test_a_rank_that_stops_is_named_with_all_stacks_and_the_run_restarts(tmp_path, started, expected, kind, seed):
    draw = random.Random(seed)
    rank = draw.randrange(2)
    side = draw.choice("dg")
    (tmp_path / "strange.py").write_text(HANGING_LOSS)
    out = tmp_path / "run"
    started.append(process := train(out, *WORDS, "--trust", MISHAP=f"{kind},{rank},{side},{draw.randrange(12, 40)}"))
    said, complaints = process.communicate(timeout=200)
    assert process.returncode == 0, said + complaints
    found = re.search(
        r"restarting from the last checkpoint: rank (\d) made no progress for ([\d.]+) s in the phase (\w+)", said
    )
    assert found, said + complaints + (out / "ranks" / "launch.log").read_text()
    assert found[1] == str(rank) and found[3] == f"{side}_turn"
    assert 2 < float(found[2]) < 60  # found before the ranks' waits would have ended
    assert ("it was suspended" in said) == (kind == "stop")
    for number in range(2):
        text = (out / "stacks" / f"rank-{number}.txt").read_text()
        assert "in _train" in text, text
    assert f"in {side}_loss" in (out / "stacks" / f"rank-{rank}.txt").read_text()
    assert [end["code"] for end in left(out).values()] == [0, 0]

    resumed = CheckpointWriter(folder=out / "checkpoints").newest()
    assert resumed.step == expected.step == 50
    for group, tensors in expected.groups.items():
        for name, tensor in tensors.items():
            assert tensor.equal(resumed.groups[group][name]), (group, name)


@pytest.mark.slow
def test_a_single_process_that_hangs_ends_with_75_and_its_stack(tmp_path, started):
    (tmp_path / "strange.py").write_text(HANGING_LOSS)
    out = tmp_path / "run"
    started.append(process := train(out, *WORDS, "--trust", devices=(), MISHAP="1000,any,g,12"))
    said, complaints = process.communicate(timeout=100)
    assert process.returncode == 75, said + complaints
    assert re.match(r"rank 0 made no progress for [\d.]+ s in the phase g_turn of step ", complaints), complaints
    assert "in mishap" in (out / "stacks" / "rank-0.txt").read_text()
    assert '"code": 75' in (out / "exit.json").read_text()
