"""This machine: a shell script that trains one run after another with `devices=N`."""

from __future__ import annotations

from paragan.distributed.clusters._job import ClusterJob, Target, refuse, shell_command, shell_script


def _render(job: ClusterJob) -> str:
    """Return the script. `ConfigError`: the job sets what only a cluster has."""
    options = {"memory_mb": "--memory-mb", "time_limit_min": "--time-limit", "site": "--site"}
    refuse(job, "local", nodes="--nodes", image="--image", volumes="--volume", **options)
    command = shell_command(job, *([f"devices={job.size}"] if job.size > 1 else []))
    return shell_script(job, command)


TARGET = Target(".sh", lambda _, path: ["sh", str(path)], _render)
