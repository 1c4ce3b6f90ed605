"""MPI: a shell script that starts a grid on several hosts by `mpiexec`.

Rank 0 coordinates, the others train cells. Other runs exchange nothing by MPI.
"""

import shlex

from paragan.extensions.clusters.job import ClusterJob, Target, check_unset, shell_command, shell_script


def _render(job: ClusterJob) -> str:
    """Return the script. `job.site`: options of mpiexec, such as `--hostfile hosts`."""
    limits = {"memory_mb": "--memory-mb", "time_limit_min": "--time-limit"}
    check_unset(job, "mpi", image="--image", volumes="--volume", **limits)
    mpiexec = shlex.join(["mpiexec", "-n", str(job.size), *job.site])
    settings = [] if "transport=mpi" in job.words else ["transport=mpi"]
    return shell_script(job, f"{mpiexec} {shell_command(job, *settings)}")


TARGET = Target(suffix=".sh", submit=lambda _, path: ["sh", str(path)], render=_render)
