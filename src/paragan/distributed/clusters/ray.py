"""Ray: a Python file for `ray job submit`, which starts the ranks in a placement group.

Ray runs the file on its head node. The run folder must be on a disk that all nodes share.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePath
from pprint import pformat
from typing import Any

from paragan.core.errors import ConfigError
from paragan.distributed.clusters._job import ClusterJob, Target, refuse

_DRIVER = Path(__file__).parent / "_ray_driver.py"
_BLANK = "JOB: dict[str, Any] = "


def _render(job: ClusterJob) -> str:
    """Return the driver. `ConfigError`: the job sets what Ray does not have."""
    refuse(job, "ray", image="--image", volumes="--volume", time_limit_min="--time-limit")
    values = pformat(_values(job), width=100, compact=True, sort_dicts=False)
    before, found, after = _DRIVER.read_text(encoding="utf-8").partition(_BLANK + "{}")
    assert found
    return f"{before}{_BLANK}{values}{after}"


def _values(job: ClusterJob) -> dict[str, Any]:
    """Return what the driver reads."""
    folders = [["--out", job.out]]
    if job.seeds:
        folders = [[f"seed={seed}", "--out", job.out_of(seed)] for seed in job.seeds]
    ranks = {"WORLD_SIZE": job.size, "LOCAL_WORLD_SIZE": job.ranks_per_node}
    texts = {"OMP_NUM_THREADS": job.cpus_per_rank, **ranks}
    return {
        "runs": [job.command(*words) for words in folders],
        "directory": str(job.directory or Path.cwd()),
        "environment": {name: str(value) for name, value in texts.items()} | dict(job.environment),
        "nodes": job.nodes,
        "resources": _resources(job),
        "retries": job.retries,
        "save_s": job.save_s,
    }


def _resources(job: ClusterJob) -> dict[str, int]:
    """Return what one node requests."""
    found = {"CPU": job.cpus_per_rank * job.ranks_per_node}
    if job.gpus_per_rank:
        found["GPU"] = job.ranks_per_node
    if job.memory_mb is not None:
        found["memory"] = (job.memory_mb << 20) * job.ranks_per_node
    return found


def _submit(job: ClusterJob, path: PurePath) -> list[str]:
    """Return the command. Ray kills a job that has not ended some time after a request to stop."""
    if "--" in job.site:
        raise ConfigError("--site: -- is no option of `ray job submit`, such as --address=URL")
    variables = {"RAY_JOB_STOP_WAIT_TIME_S": str(2 * job.save_s)}
    environment = ["--runtime-env-json", json.dumps({"env_vars": variables})]
    folder = ["--working-dir", str(path.parent)]
    python = job.python or sys.executable
    return ["ray", "job", "submit", *folder, *environment, *job.site, "--", python, path.name]


TARGET = Target(".ray.py", _submit, _render)  # not .py: nothing must import it in place of a module
