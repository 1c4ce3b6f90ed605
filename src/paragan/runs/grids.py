"""Grids under torchrun or mpiexec: rank 0 coordinates, the others are workers and print nothing."""

from __future__ import annotations

from dataclasses import replace

from paragan.build.worker import worker
from paragan.config import RunConfig, dump
from paragan.core.errors import ConfigError, RankError
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.join import join
from paragan.distributed.launch.rank_env import RankEnv


def of_torchrun(config: RunConfig, place: RankEnv) -> ExternalWorkers:
    """Return the processes of torchrun; they exchange messages on the host, on any device."""
    import torch

    world = join(place, torch.device("cpu"), config.train.timeout_s)
    store = world.store
    assert store is not None

    def receive() -> str:
        return store.get("company").decode()  # ends with the store's time-out

    return ExternalWorkers(world.rank, world.size, lambda text: store.set("company", text), receive)


def of_mpiexec(config: RunConfig) -> ExternalWorkers:
    """Return the processes of mpiexec. Initialises MPI."""
    from paragan.distributed.transports.mpi_communicator import MpiWorld

    world = MpiWorld()
    timeout_s = config.train.timeout_s

    def send(text: str) -> None:
        world.broadcast_text(text, timeout_s)

    return ExternalWorkers(world.rank, world.size, send, lambda: world.receive_text(timeout_s), mpi=True)


def with_num_workers(config: RunConfig, company: ExternalWorkers) -> RunConfig:
    """Return the config with one worker for each rank except the coordinator's."""
    others = company.size - 1
    if config.workers not in (None, others):
        raise ConfigError(
            f"workers={config.workers} does not fit {company.size} processes, which are {others} "
            "workers and the coordinator; leave workers out"
        )
    return replace(config, workers=others)


def serve(config: RunConfig, company: ExternalWorkers) -> int:
    """Run a worker until the coordinator ends it; return the exit code. Prints errors only."""
    message = company.receive()
    if "token" not in message:  # the coordinator failed to start, and prints why
        return 0
    address = message["token"], message["host"], int(message["port"])
    if why := worker(*address, lambda text: None, str(company.rank - 1), company, dump(config)):
        raise RankError(f"worker {company.rank}: {why}")
    return 0
