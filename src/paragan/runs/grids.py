"""Where a grid is trained: in this process, on workers that it starts, or on processes that somebody else has started.

Of those, rank 0 is the coordinator and runs what a process alone would; the others have no run folder, and no voice.
"""

from __future__ import annotations

from dataclasses import replace

from paragan.build.workers import worker
from paragan.config import RunConfig, dump
from paragan.core.errors import ConfigError, RankError
from paragan.distributed.launch.external_workers import ExternalWorkers, from_world
from paragan.distributed.launch.join import join
from paragan.distributed.launch.rank_env import RankEnv


def of_torchrun(config: RunConfig, place: RankEnv) -> ExternalWorkers:
    """The ranks that torchrun started: they meet on the host, whatever each of them will train on."""
    import torch

    return from_world(join(place, torch.device("cpu"), config.train.timeout_s))


def of_mpiexec(config: RunConfig) -> ExternalWorkers:
    """The processes of mpiexec. Begins MPI."""
    from paragan.distributed.transports.mpi_communicator import MpiWorld

    world, timeout_s = MpiWorld(), config.train.timeout_s
    tell, hear = (lambda text: world.broadcast_text(text, timeout_s)), (lambda: world.receive_text(timeout_s))
    return ExternalWorkers(world.rank, world.size, tell, hear, mpi=True)


def staffed(config: RunConfig, company: ExternalWorkers) -> RunConfig:
    """With as many workers as there are others."""
    others = company.size - 1
    if config.workers not in (None, others):
        raise ConfigError(
            f"workers: found {config.workers} where {company.size} processes were started, expected {others} and the "
            "coordinator; leave workers out"
        )
    return replace(config, workers=others)


def serve(config: RunConfig, company: ExternalWorkers) -> int:
    """A worker's part, until the coordinator sends it home; the exit code. It prints what goes wrong, and no more."""
    called = company.receive()
    if "token" not in called:  # the coordinator could not begin, and says why
        return 0
    address = called["token"], called["host"], int(called["port"])
    if why := worker(*address, lambda text: None, str(company.rank - 1), company, dump(config)):
        raise RankError(f"worker {company.rank}: {why}")
    return 0
