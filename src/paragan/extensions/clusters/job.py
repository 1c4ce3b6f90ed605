"""A job on a cluster, a kind of cluster, and the parts of shell scripts that several kinds share."""

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from paragan.core.errors import ConfigError

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,39}[a-z0-9])?")  # fits Slurm, and Kubernetes with a suffix
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MIN_VALUES = {  # by field
    "nodes": 1,
    "ranks_per_node": 1,
    "cpus_per_rank": 1,
    "memory_mb": 1,
    "time_limit_min": 1,
    "gpus_per_rank": 0,
    "retries": 0,
    "save_s": 1,
}


@dataclass(frozen=True, kw_only=True)
class ClusterJob:
    """A run, or one run per seed, on a cluster. `ConfigError`: a value is invalid.

    words: arguments of `paragan train` without `--out`. out: the run folder; with seeds, the folder
    of the runs `seed-N`. directory: working directory; None: that of the submission or the image.
    python: None: this interpreter, or `python` of the image. memory_mb: of one rank.
    time_limit_min: of one start; on Kubernetes of all together. save_s: from the request to stop
    until the job is killed. retries: restarts after a temporary failure. volumes: (claim, path)
    of Kubernetes. site: words for the site's program, which each target checks.
    """

    name: str
    words: tuple[str, ...]
    out: str
    directory: PurePath | None = None
    python: str | None = None
    nodes: int = 1
    ranks_per_node: int = 1
    cpus_per_rank: int = 1
    gpus_per_rank: int = 0
    memory_mb: int | None = None
    time_limit_min: int | None = None
    save_s: int = 120
    retries: int = 3
    seeds: tuple[int, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    image: str | None = None
    volumes: tuple[tuple[str, str], ...] = ()
    site: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"--name: {self.name!r} is not a name on every cluster; use a letter, then up to 40 of a-z, 0-9 and -"
            )
        for field, min_value in _MIN_VALUES.items():
            value = getattr(self, field)
            if value is not None and value < min_value:
                raise ConfigError(f"{field} is {value}; use at least {min_value}")
        if self.gpus_per_rank > 1:
            raise ConfigError("a rank computes on one accelerator; use --gpus 1 and more --ranks")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds, default=0) < 0:
            raise ConfigError("--seeds: a seed is negative or given twice; use such as 0,1,2")
        for name, _ in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"--env: {name!r} is not the name of a variable; use NAME=VALUE")

    @property
    def size(self) -> int:
        """Number of ranks of one run."""
        return self.nodes * self.ranks_per_node

    def out_of(self, seed: int | None) -> str:
        """Return the run folder of a seed, or its address in an object store. seed: None for a job without seeds."""
        return self.out if seed is None else f"{self.out}/seed-{seed}"

    def command(self, *settings: str) -> list[str]:
        """Return the command that trains one rank, without the folder of the run. settings: after those of the job."""
        # -P: the folder that it starts in cannot replace modules
        return [self.python or sys.executable, "-P", "-m", "paragan", "train", *self.words, *settings]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A kind of cluster.

    suffix: of the job file. submit: returns the command that submits that file. render: returns its
    text; `ConfigError`: a job that the target cannot run.
    """

    suffix: str
    submit: Callable[[ClusterJob, PurePath], list[str]]
    render: Callable[[ClusterJob], str]


def shell_head(job: ClusterJob) -> list[str]:
    """Return the first lines of a shell script: the working directory and the environment."""
    lines = [f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{job.cpus_per_rank}}}"']
    if job.directory is not None:
        lines.insert(0, f"cd -- {shlex.quote(str(job.directory))} || exit 2")
    return lines + [f"export {name}={shlex.quote(text)}" for name, text in job.environment]


def shell_command(job: ClusterJob, *settings: str) -> str:
    """Return the quoted command of one rank, with the run folder; of `$seed` if there are seeds."""
    out = shlex.quote(job.out)
    # `seed=` is a setting of `paragan train`, `$seed` the variable of the shell's loop
    seed_and_out = f'seed="$seed" --out {out}/seed-"$seed"' if job.seeds else f"--out {out}"
    return f"{shlex.join(job.command(*settings))} {seed_and_out}"


def shell_script(job: ClusterJob, command: str) -> str:
    """Return a script that runs a command, once or for each seed until one fails."""
    if job.seeds:
        seeds = " ".join(map(str, job.seeds))
        body = [f"for seed in {seeds}; do", f"    {command} || exit", "done"]
    else:
        body = [f"exec {command}"]
    return "\n".join(["#!/bin/sh", *shell_head(job), *body, ""])


def one_host_script(job: ClusterJob, target: str) -> str:
    """Return a script that trains on all ranks of one host, by `devices=N`. Raises `ConfigError` for several."""
    if job.nodes > 1:
        hint = "for several hosts use `launch slurm`, `launch kubernetes`, or torchrun on each"
        raise ConfigError(f"--nodes does not apply to `launch {target}`; {hint}")
    devices = [f"devices={job.size}"] if job.size > 1 else []
    return shell_script(job, shell_command(job, *devices))


def check_unset(job: ClusterJob, target: str, **options: str) -> None:
    """Raise `ConfigError` for a field that was set and that the target does not have. options: by field."""
    for field, option in options.items():
        default = getattr(ClusterJob, field)
        if getattr(job, field) != default:
            raise ConfigError(f"{option} does not apply to `launch {target}`; leave it out")
