"""A pair of networks that exceeds the memory limit of one process trains on two ranks.

The limit is `RLIMIT_DATA`, and includes what torch needs.
"""

import resource
import subprocess
import sys

import pytest

from tests.processes import ROOT, environment

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

LIMIT = 1600 << 20
RUN = (
    *("digits", "model.width=384", "train.batch=8", "train.kimg=0.016", "train.threads=1", "every.sample_kimg=0"),
    *("evaluation.features=null", "g.precision=fp32", "d.precision=fp32"),
)


def limited(folder, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-m", "paragan", "train", *RUN, *words, "--out", "run"]
    return subprocess.run(
        command,
        env=environment(**variables),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT)),
    )


def test_pair_exceeds_the_limit_fails_alone_with_advice(tmp_path):
    done = limited(tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "out of memory: " in done.stderr and "pass devices=2 g.strategy=zero3" in done.stderr


@pytest.mark.parametrize("strategy", ["pipeline", "zero3"])
def test_pair_exceeds_the_limit_trains_on_two_ranks(tmp_path, strategy):
    done = limited(tmp_path, "devices=2", f"g.strategy={strategy}", f"d.strategy={strategy}")
    assert done.returncode == 0, done.stderr
    assert "finished: step 2" in done.stdout
