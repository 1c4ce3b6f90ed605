"""A job of `paragan launch ray` on a real Ray cluster: a request to stop."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment, wait_for
from tests.ray_cluster import ray_cluster, why_absent
from tests.tiny_run import SMALL, newest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.distributed,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(why_absent()), reason=why_absent() or "Ray is here"),
]
SIZES = ("data.size=8", "train.batch=16", "train.kimg=6.4", "train.threads=1")
DUE = ("every.sample_kimg=0", "every.save_kimg=0.32", "evaluation.features=null")
TRAIN = ("digits", *SIZES, *DUE, *SMALL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ray_cluster(tmp_path_factory.mktemp("ray")) as found:
        yield found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    """Weights of the same run on two ranks without Ray."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [sys.executable, "-m", "paragan", "train", *TRAIN, "devices=2", "--out", str(folder / "run")]
    subprocess.run(command, env=environment(), cwd=folder, stdout=subprocess.DEVNULL, timeout=600, check=True)
    return weights(folder / "run")


def submit(cluster, folder: Path) -> subprocess.Popen:
    """The command line that submits a job of two ranks, and prints what it prints until it has ended."""
    options = ["--ranks", "2", "--out", str(folder / "run"), "--save-s", "60"]
    command = [sys.executable, "-m", "paragan", "launch", "ray", *TRAIN, *options]
    variables = environment(RAY_API_SERVER_ADDRESS=cluster.address)
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {"env": {**variables, "PYTHONUNBUFFERED": "1"}, "cwd": folder, "text": True}
    with (folder / "log").open("a") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **more)


def log(folder: Path) -> str:
    return (folder / "log").read_text()


def wait_for_checkpoint(folder: Path, process) -> None:
    wait_for(lambda: list((folder / "run").glob("checkpoints/step-*[1-9]*")), process, seconds=400)


def weights(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in newest(run).glob("*.safetensors")}


def test_stopped_job_saves_and_resumes_at_that_step_when_it_is_submitted_again(cluster, undisturbed, tmp_path):
    process = submit(cluster, tmp_path)
    wait_for_checkpoint(tmp_path, process)
    job = re.search(r"raysubmit_\w+", log(tmp_path))[0]
    cluster.stop(job)
    process.wait(400)
    assert cluster.status(job) == "STOPPED"
    ended = json.loads((tmp_path / "run" / "exit.json").read_text())
    assert (ended["code"], ended["reason"]) == (85, "stopped by a signal; saved")
    assert 0 < ended["step"] < 400
    assert submit(cluster, tmp_path).wait(600) == 0, log(tmp_path)
    assert f"resuming at step {ended['step']}" in log(tmp_path)
    assert weights(tmp_path / "run") == undisturbed
