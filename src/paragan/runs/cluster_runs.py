"""Runs as jobs of a cluster: checks before a job waits in a queue, and submission."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes
from paragan.distributed.clusters import ClusterJob, load_target


def refuse_unfit(config: RunConfig, job: ClusterJob, target: str) -> None:
    """Raise `ConfigError` if the ranks of this job could not train this config."""
    is_grid = config.grid is not None
    if target == "mpi" and not is_grid:
        raise ConfigError("`launch mpi` trains grids, and this recipe is none; use another target")
    if target != "mpi" and config.transport == "mpi":
        raise ConfigError(f"transport=mpi does not apply to `launch {target}`; leave it out")
    if target in ("local", "ray") and is_grid and job.size > 1:
        raise ConfigError(f"--ranks does not apply to a grid on one host; use workers={job.size}")
    if config.devices is not None:
        given = f"devices={config.devices}"
        raise ConfigError(f"{given} does not apply to `launch`; use --ranks {config.devices}")
    if not is_grid and config.train.batch < job.size:
        shared = f"{job.size} ranks share train.batch={config.train.batch}"
        raise ConfigError(f"{shared}; raise it, or use fewer ranks")
    if job.seeds and any(word.startswith("seed=") for word in job.words):
        raise ConfigError("seed= and --seeds are both given; leave one of them out")


def submit(job: ClusterJob, target: str, folder: Path) -> None:
    """Write the job's file into `folder`, and become the program that submits it."""
    cluster = load_target(target)
    path = folder / f"{job.name}{cluster.suffix}"
    text = cluster.render(job)
    words = cluster.submit(job, path)
    if shutil.which(words[0]) is None:
        hint = "run this where it is installed, or pass --dry-run to print the file"
        raise ConfigError(f"the program {words[0]} is not on PATH; {hint}")
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode(), 0o600)  # hosts share the disk, and --env may hold a secret
    print(f"submitting: {shlex.join(words)}")
    sys.stdout.flush()
    os.execvp(words[0], words)
