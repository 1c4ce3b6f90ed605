"""Runs as jobs of a cluster: checks before a job waits in a queue, and submission."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from paragan import build
from paragan.config import RunConfig
from paragan.core.addresses import is_url
from paragan.core.capabilities import Capability, check_capabilities
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.files import write_bytes
from paragan.core.types import Side
from paragan.extensions.clusters import ClusterJob, load_target
from paragan.runs import rank_checks
from paragan.runs.run_request import RunRequest, check_data_files, check_init
from paragan.runs.session import check_start


def check_job(config: RunConfig, job: ClusterJob, target: str) -> None:
    """Raise `ConfigError` if the ranks of this job could not train this config."""
    is_grid = config.grid is not None
    if target == "mpi" and not is_grid:
        raise ConfigError(
            f"`launch mpi` trains grids, and {job.words[0]} is none: its ranks exchange nothing by MPI; start them by "
            f"{_start_ranks(job)}, or use `launch slurm` or `launch kubernetes`"
        )
    if target != "mpi" and config.transport == "mpi":
        raise ConfigError(f"transport=mpi does not apply to `launch {target}`; leave it out")
    if target in ("local", "ray") and is_grid and job.size > 1:
        raise ConfigError(f"--ranks does not apply to a grid on one host; use workers={job.size}")
    if config.devices is not None:
        raise ConfigError(f"devices={config.devices} does not apply to `launch`; use --ranks {config.devices}")
    if not is_grid and config.train.batch < job.size:
        raise ConfigError(f"{job.size} ranks share train.batch={config.train.batch}; raise it, or use fewer ranks")
    if not is_grid and job.size > 1:
        rank_checks.check_batch(config, World(size=job.size))
        _check_ranks(config, job.size)
    if job.seeds and any(word.startswith("seed=") for word in job.words):
        raise ConfigError("seed= and --seeds are both given; leave one of them out")


def check_job_start(config: RunConfig, job: ClusterJob, target: str) -> None:
    """Raise, before any process starts, what `train` would raise, as far as this host can know it.

    Pods and hosts of Ray may have other paths than this host: nothing is checked for them.
    """
    request = RunRequest(config=config, name=job.words[0], out=Path(job.out))
    if target == "slurm":
        check_init(request)  # on the disk that all hosts share; files of data may be on the others only
    elif target in ("local", "mpi") and not is_url(job.out):
        check_data_files(config.data.options)
        check_start(request, job.size)


def _check_ranks(config: RunConfig, size: int) -> None:
    """Raise `ConfigError` if the scheme cannot give each player its ranks among so many."""
    scheme = build.scheme(config)
    check_capabilities(scheme.holder, [need for need in config.needs if need.capability is Capability.EXTRA_PLAYERS])
    ranks = scheme.assign(size)
    has_separate_ranks = set(ranks[Side.G]).isdisjoint(ranks[Side.D])
    if has_separate_ranks and {side.value for side in ranks} != set(config.player_options):
        raise ConfigError(
            f"the players are {', '.join(config.player_options)}, and scheme {config.scheme.name} has ranks for "
            f"{', '.join(side.value for side in ranks)}; give ranks to each: scheme.ranks"
        )


def _start_ranks(job: ClusterJob) -> str:
    """Return the command that trains on the ranks of a job without a cluster's program, for a message."""
    train = shlex.join(["-m", "paragan", "train", *job.words, "--out", job.out])
    if job.nodes == 1:
        return f"`torchrun --standalone --nproc-per-node={job.ranks_per_node} {train}`"
    hosts = f"--nnodes={job.nodes} --nproc-per-node={job.ranks_per_node}"
    address = "--master-addr=ADDRESS-OF-A --master-port=29500 --node-rank=N"
    return f"`torchrun {hosts} {address} {train}` on each host, where N is 0 on host A"


def submit(job: ClusterJob, target: str, folder: Path) -> None:
    """Write the job's file into `folder`, and become the program that submits it."""
    cluster = load_target(target)
    path = folder / f"{job.name}{cluster.suffix}"
    text = cluster.render(job)
    command = cluster.submit(job, path)
    if shutil.which(command[0]) is None:
        hint = "run this where it is installed, or pass --dry-run to print the file"
        raise ConfigError(f"the program {command[0]} is not on PATH; {hint}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.encode(), mode=0o600)  # hosts share the disk, and --env may hold a secret
    print(f"submitting: {shlex.join(command)}")
    sys.stdout.flush()
    os.execvp(command[0], command)
