"""Jobs of `paragan launch slurm` on a real Slurm: they save when they are stopped, and resume where they stopped."""

import json
import re
import sys
from pathlib import Path

import pytest

from paragan.extensions.clusters import ClusterJob, load_target
from tests.processes import ROOT, wait_for
from tests.slurm_cluster import slurm_cluster, why_absent
from tests.tiny_run import SMALL, newest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.distributed,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_absent()), reason=why_absent() or "Slurm is here"),
]
WORDS = ("data.size=8", "train.batch=16", "train.kimg=6.4", "train.threads=1", "every.sample_kimg=0", *SMALL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def submit(cluster, folder: Path, **changes) -> str:
    """Id of a job of two ranks in the partition of low priority, with its run in `folder/run`."""
    values = {"seeds": (), "words": ("digits", *WORDS, "evaluation.features=null"), **changes}
    more = {"ranks_per_node": 2, "environment": (("PYTHONPATH", str(ROOT / "src")),), "python": sys.executable}
    job = ClusterJob(
        name="digits",
        words=values.pop("words"),
        out=str(folder / "run"),
        directory=folder,
        site=("--partition=low",),
        **more,
        **values,
    )
    folder.mkdir(exist_ok=True)
    (folder / "job.sbatch").write_text(load_target("slurm").render(job))
    return cluster.submit("job.sbatch", folder=folder)


def output(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("digits-*.log"))


def wait_for_steps(folder: Path) -> None:
    record = folder / "metrics.jsonl"
    wait_for(lambda: record.exists() and '"step"' in record.read_text())


def saved_step(folder: Path) -> int:
    return int(re.search(r"stopped by a signal; saved: step (\d+)", output(folder))[1])


def weights(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in newest(run).glob("*.safetensors")}


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory) -> dict[str, bytes]:
    """Weights of the run that nothing stops."""
    folder = tmp_path_factory.mktemp("undisturbed")
    cluster.wait(submit(cluster, folder), "COMPLETED", seconds=240)
    assert json.loads((folder / "run" / "exit.json").read_text())["code"] == 0
    return weights(folder / "run")


@pytest.mark.parametrize("how", ["preempted", "signal before the time limit"])
def test_stopped_job_saves_requeues_and_ends_with_equal_weights(how, cluster, undisturbed, tmp_path):
    job = submit(cluster, tmp_path)
    wait_for_steps(tmp_path / "run")
    if how == "preempted":
        cluster.submit("--partition=high", "--ntasks=2", "--output=/dev/null", "--wrap=true", folder=tmp_path)
    else:  # as `--signal=USR1@120` sends it: to the steps, not to the script
        assert cluster.signal(job)
    cluster.wait(job, "PENDING")
    assert json.loads((tmp_path / "run" / "exit.json").read_text())["code"] == 85
    step = saved_step(tmp_path)
    assert 0 < step < 400
    cluster.wait(job, "COMPLETED", seconds=240)
    assert f"resuming at step {step}:" in output(tmp_path)
    assert "Restarts=1 " in cluster.run("scontrol", "show", "job", job)
    assert weights(tmp_path / "run") == undisturbed


def test_cancelled_job_is_not_requeued(cluster, tmp_path):
    job = submit(cluster, tmp_path)
    wait_for_steps(tmp_path / "run")
    cluster.run("scancel", job)
    cluster.wait(job, "CANCELLED")
    assert "Restarts=0 " in cluster.run("scontrol", "show", "job", job)


def test_stopped_seed_of_an_array_requeues_alone(cluster, tmp_path):
    job = submit(cluster, tmp_path, seeds=(4, 9))
    wait_for_steps(tmp_path / "run" / "seed-4")
    cluster.run("scontrol", "hold", f"{job}_1")  # the second needs the cores of the first
    assert cluster.signal(f"{job}_0")
    cluster.wait(f"{job}_0", "PENDING")
    cluster.wait(f"{job}_0", "COMPLETED", seconds=240)
    assert "Restarts=1 " in cluster.run("scontrol", "show", "job", f"{job}_0")
    assert "Restarts=0 " in cluster.run("scontrol", "show", "job", f"{job}_1")
    assert not (tmp_path / "run" / "seed-9").exists()
