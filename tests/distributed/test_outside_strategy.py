"""A strategy that is one file outside the package, and cuts axis 1, does all that a built-in one does.

`tests/scratch/scratchpkg/columns.py`: named by its dotted path, listed nowhere.
"""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from paragan.checkpoint.manifest import read_manifest
from paragan.checkpoint.reader import read_checkpoint
from paragan.core.dist import ALONE
from tests.distributed import cases_checkpoints
from tests.distributed.test_laws import OPPOSITE, PAIRS, hold
from tests.processes import ROOT, environment
from tests.tiny_run import newest

pytestmark = pytest.mark.distributed

COLUMNS = "tests.scratch.scratchpkg.columns"
CASES = "tests.distributed.cases_checkpoints"
SMALL = (
    *("data.size=8", "model.width=5", "model.latent=7", "train.batch=16", "g.precision=fp32", "d.precision=fp32"),
    *("evaluation.features=null", "every.sample_kimg=0"),
    *("g.optimizer.arguments.eps=1e-3", "d.optimizer.arguments.eps=1e-3"),
)
BOTH = ("g.strategy=scratchpkg.columns", "d.strategy=scratchpkg.columns")


def test_outside_strategy_one_rank_is_none(one_rank):
    case = "tests.distributed.cases_laws:one_is_none"
    assert one_rank.run(case, name=COLUMNS, numbers=PAIRS[False]) == [[]]


@pytest.mark.parametrize(
    ("uneven", "count"),
    [(True, 3), pytest.param(False, 1, marks=pytest.mark.slow), pytest.param(False, 3, marks=pytest.mark.slow)],
    ids=["uneven", "even", "even-all"],
)
def test_outside_strategy_two_ranks_are_the_batch(two_ranks, uneven, count):
    assert hold(two_ranks, COLUMNS, COLUMNS, uneven=uneven, numbers=PAIRS[uneven][:count]) == count
    if count == 3:
        assert hold(two_ranks, COLUMNS, "zero3", uneven=uneven, numbers=OPPOSITE[uneven][:1]) == 1


def test_outside_strategy_checkpoint_is_read_by_any_other(tmp_path, one_rank, two_ranks, three_ranks):
    two_ranks.run(f"{CASES}:save", folder=str(tmp_path), g=COLUMNS, d=COLUMNS)
    boxes = read_manifest(max(tmp_path.glob("step-*"))).groups["d"].values()
    cut = [box for held in boxes for box in held.values() if not box.is_whole]
    assert cut and all(box.length[0] == box.shape[0] and box.length[1] < box.shape[1] for box in cut)
    for pool, g, d in ((one_rank, "ddp", "ddp"), (two_ranks, COLUMNS, "zero1"), (three_ranks, "zero3", COLUMNS)):
        assert max(pool.run(f"{CASES}:go_on", folder=str(tmp_path), g=g, d=d)) <= 1e-10
    assert cases_checkpoints.go_on(ALONE, str(tmp_path), "none", "none") <= 1e-10


@pytest.mark.slow
def test_outside_strategy_reads_the_checkpoint_of_any_other(tmp_path, two_ranks, three_ranks):
    three_ranks.run(f"{CASES}:save", folder=str(tmp_path), g="zero3", d="zero1")
    assert max(two_ranks.run(f"{CASES}:go_on", folder=str(tmp_path), g=COLUMNS, d=COLUMNS)) <= 1e-10


def test_outside_strategy_drift_between_ranks_is_named(two_ranks):
    for said in two_ranks.run(f"{CASES}:differ", what="the average", rank=1, g=COLUMNS, d=COLUMNS):
        assert "g: average: gamma differs between ranks 0 and 1" in said


def called(folder, *words: str) -> str:
    paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests' / 'scratch'}"}
    command = [sys.executable, "-m", "paragan", *words]
    done = subprocess.run(command, env=environment(**paths), cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def resumes_and_exports(folder, words, *trust: str) -> str:
    """Check a run on two ranks that stops, and resumes on one and two; return what it printed. `on-2` is exported."""
    train = ("train", "digits", *SMALL, "train.kimg=0.064", "every.save_kimg=0.032", *words)
    said = called(folder, *train, "devices=2", "--out", "straight")
    for devices in (1, 2):
        stopped = folder / f"on-{devices}"
        shutil.copytree(folder / "straight", stopped)
        shutil.rmtree(newest(stopped))
        (stopped / "exit.json").unlink()
        called(folder, *train, f"devices={devices}", "--out", stopped.name)
    straight, one, two = (read_checkpoint(newest(folder / name)).groups for name in ("straight", "on-1", "on-2"))
    for side in ("g", "d"):
        for name, value in straight[side].items():
            assert torch.equal(two[side][name], value)
            torch.testing.assert_close(one[side][name], value, rtol=1e-4, atol=1e-5)
    called(folder, "export", "on-2", *trust, "--out", "g.safetensors")
    exported = load_file(folder / "g.safetensors")
    assert all(torch.equal(value, straight["g"][f"ema/{name}"]) for name, value in exported.items())
    return said


@pytest.mark.slow
def test_outside_strategy_trains_resumes_and_exports(tmp_path):
    """A stopped run ends the same on two ranks, bit for bit, and on one, equal to rounding."""
    said = resumes_and_exports(tmp_path, BOTH, "--trust")
    assert "G columns, D columns" in said and "G         2,231 weights" in said


@pytest.mark.slow
def test_outside_strategy_passes_the_laws_of_verify(tmp_path):
    words = ("verify", "digits", *SMALL[:3], "--ranks", "2", "--json", BOTH[0])
    rows = [row for row in json.loads(called(tmp_path, *words)) if row["strategy"].startswith("scratchpkg.columns")]
    assert [row["law"] for row in rows] == ["one is none", *["ranks are the batch"] * 2]
    assert {row["result"] for row in rows} == {"held"}
