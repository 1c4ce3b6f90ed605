"""Two hosts with a rank each are one host with two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.shaped_hosts import ROOT, lacking, run_torchrun, shaped_hosts

pytestmark = [pytest.mark.distributed, pytest.mark.skipif(bool(lacking()), reason=f"not run: {lacking()}")]

WORDS = ["train", "digits", "train.kimg=1.5", "every.sample_kimg=0", "every.save_kimg=0", "evaluation.features=null"]


def last(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_two_hosts_equal_one(tmp_path):
    with shaped_hosts(2, None) as hosts:
        run_torchrun(hosts, ["-m", "paragan", *WORDS, "--out", str(tmp_path / "two")], tmp_path, 200)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "paragan", *WORDS, "devices=2", "--out", str(tmp_path / "one")]
    subprocess.run(command, env=environment, check=True, timeout=200, capture_output=True)
    names = sorted(path.name for path in last(tmp_path / "one").glob("*.safetensors"))
    assert names
    for name in names:
        one, two = (load_file(last(tmp_path / run) / name) for run in ("one", "two"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one), name
