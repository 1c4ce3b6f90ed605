"""This machine: a shell script that trains one run after another with `devices=N`."""

from paragan.extensions.clusters.job import ClusterJob, Target, check_unset, one_host_script


def _render(job: ClusterJob) -> str:
    options = {"memory_mb": "--memory-mb", "time_limit_min": "--time-limit", "site": "--site"}
    check_unset(job, "local", image="--image", volumes="--volume", **options)
    return one_host_script(job, "local")


TARGET = Target(suffix=".sh", submit=lambda _, path: ["sh", str(path)], render=_render)
