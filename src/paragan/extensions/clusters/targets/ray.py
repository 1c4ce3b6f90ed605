"""Ray: a shell script for `ray job submit`, which Ray runs on one node that has the resources.

Ranks are those of `devices=N`: torchrun would hide their exit codes, and open a port on the network.
The run folder must be on a disk that all nodes share, so that another node can resume the run.
"""

import json
from dataclasses import replace
from pathlib import Path, PurePath

from paragan.core.errors import ConfigError
from paragan.extensions.clusters.job import ClusterJob, Target, check_unset, one_host_script


def _render(job: ClusterJob) -> str:
    check_unset(job, "ray", image="--image", volumes="--volume", time_limit_min="--time-limit")
    # Ray starts the script in a copy of its folder
    return one_host_script(replace(job, directory=job.directory or Path.cwd()), "ray")


def _submit(job: ClusterJob, path: PurePath) -> list[str]:
    """Return the command that submits the script at `path`."""
    if "--" in job.site:
        raise ConfigError("--site: -- is not an option of `ray job submit`, such as --address=URL")
    # Ray kills a job that has not ended so long after a request to stop: the run needs `save_s` of it
    environment = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(2 * job.save_s)}}
    resources = [f"--entrypoint-num-cpus={job.cpus_per_rank * job.size}"]
    if job.gpus_per_rank:
        resources.append(f"--entrypoint-num-gpus={job.size}")
    if job.memory_mb is not None:
        resources.append(f"--entrypoint-memory={(job.memory_mb << 20) * job.size}")
    folder = ["--working-dir", str(path.parent), "--runtime-env-json", json.dumps(environment)]
    return ["ray", "job", "submit", *folder, *resources, *job.site, "--", "sh", path.name]


# in a folder of its own: Ray copies the folder to the cluster, and files of other jobs may hold secrets
TARGET = Target(suffix=".ray/job.sh", submit=_submit, render=_render)
