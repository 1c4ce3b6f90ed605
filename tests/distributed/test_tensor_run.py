"""A command line of a recipe on named tensors, on one device and on two: equal scores, and equal files of audio."""

import json
import subprocess
import sys

import pytest

from tests.processes import environment
from tests.unit.api.test_tensor_sampler import SMALL

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


def trained(folder, *words):
    command = [sys.executable, "-m", "paragan", "train", *SMALL, "g.precision=fp32", "d.precision=fp32"]
    command += ["train.batch=4", "train.kimg=0.012", *words, "--out", str(folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    score = json.loads((folder / "score.json").read_text())
    return score, sorted(path.name for path in (folder / "samples").iterdir())


@pytest.mark.parametrize("strategy", ["ddp", "zero3"])
def test_two_ranks_have_the_scores_and_files_of_one(tmp_path, strategy):
    score, files = trained(tmp_path / "one", "devices=1", "every.sample_kimg=0.008")
    strategies = (f"g.strategy={strategy}", f"d.strategy={strategy}")
    shared, shared_files = trained(tmp_path / "two", "devices=2", "every.sample_kimg=0.008", *strategies)
    assert shared["log_mel_distance"] == pytest.approx(score["log_mel_distance"], rel=1e-3)
    assert shared["codebook_usage"] == pytest.approx(score["codebook_usage"], abs=1 / 32)
    assert shared_files == files
    assert "data-1.wav" in files
