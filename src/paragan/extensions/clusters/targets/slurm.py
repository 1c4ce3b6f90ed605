"""Slurm: a script for `sbatch`.

Each rank is a task of `srun`, whose exit code is the highest of all tasks. A run that was stopped
(85, or ended by the signal itself before it could save) puts its job back into the queue: Slurm
requeues a preempted job by itself only if it has to kill it.
"""

import re

from paragan.core.errors import PREEMPTED, ConfigError, RankError
from paragan.extensions.clusters.job import ClusterJob, Target, check_unset, shell_command, shell_head

_OPTION = re.compile(r"--?[A-Za-z][-A-Za-z0-9]*([ =][-\w@%+=:,./*|&()\[\]]*)?", re.ASCII)
_MIN_END_S = 30  # for the other ranks, after the first has ended; half of `save_s` if longer, to requeue in the rest

# shell command of one rank, a task of `srun`
_RANK = 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID LOCAL_WORLD_SIZE={ranks} exec "$@"'
# script of the job, after the options: starts the ranks until they succeed, fail too often, or are stopped
_BODY = """\
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
task=${{SLURM_ARRAY_JOB_ID:+${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID}}
failures=0
while :; do
    srun --kill-on-bad-exit=0 --wait={end_s} --cpus-per-task={cpus} sh -c '{rank}' rank \\
        {command}
    code=$? # after the first task has ended, the others have the time of --wait
    case $code in
    {stopped} | 138 | 143) # stopped by a signal: saved, or not yet begun
        scontrol requeue "${{task:-$SLURM_JOB_ID}}"
        exit "$code" ;;
    {again} | 1[3-9][0-9]) # a rank failed, or was killed
        failures=$((failures + 1))
        [ "$failures" -le {retries} ] || exit "$code" ;;
    *) exit "$code" ;;
    esac
done
"""


def _render(job: ClusterJob) -> str:
    check_unset(job, "slurm", image="--image", volumes="--volume")
    lines = ["#!/bin/sh", *(f"#SBATCH {option}" for option in _options(job)), *shell_head(job)]
    if job.seeds:
        seeds = " ".join(map(str, job.seeds))
        lines += [f"set -- {seeds}", 'shift "$SLURM_ARRAY_TASK_ID"', "seed=$1"]
    rank = _RANK.format(ranks=job.ranks_per_node)
    numbers = {"cpus": job.cpus_per_rank, "retries": job.retries, "end_s": max(_MIN_END_S, job.save_s // 2)}
    codes = {"stopped": PREEMPTED, "again": RankError.exit_code}
    body = _BODY.format(rank=rank, command=shell_command(job), **numbers, **codes)
    return "\n".join([*lines, body])


def _options(job: ClusterJob) -> list[str]:
    """Return the options of sbatch."""
    log = f"{job.name}-%A-%a.log" if job.seeds else f"{job.name}-%j.log"
    options = [
        f"--job-name={job.name}",
        f"--output={log}",
        "--open-mode=append",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}",
        f"--cpus-per-task={job.cpus_per_rank}",
        "--requeue",
        f"--signal=USR1@{job.save_s}",
    ]
    if job.gpus_per_rank:
        options.append(f"--gpus-per-node={job.ranks_per_node}")
    if job.memory_mb is not None:
        options.append(f"--mem={job.memory_mb * job.ranks_per_node}M")
    if job.time_limit_min is not None:
        options.append(f"--time={job.time_limit_min}")
    if job.seeds:
        options.append(f"--array=0-{len(job.seeds) - 1}")
    for option in job.site:
        if not _OPTION.fullmatch(option):
            raise ConfigError(f"--site: {option!r} is not an option of sbatch, such as --partition=gpu")
    return [*options, *job.site]


TARGET = Target(suffix=".sbatch", submit=lambda _, path: ["sbatch", str(path)], render=_render)
