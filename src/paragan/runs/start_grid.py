"""Start of a grid run: in this process, on launched workers, or under torchrun or mpiexec.

Under torchrun and mpiexec rank 0 coordinates; the others are workers, which print errors only.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace

from paragan.config import RunConfig, dump
from paragan.core.errors import CheckpointError, ConfigError, RankError, outcome
from paragan.core.interrupt import Interrupt, install
from paragan.distributed.launch import exit_status, mpiexec
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.folder import RunFolder
from paragan.runs.run_request import RunRequest


def start_grid(request: RunRequest) -> int:
    """Train a grid in the run folder; return the exit code."""
    config = request.config
    if config.devices not in (None, 1):
        found = f"devices={config.devices} does not apply to a grid"
        raise ConfigError(f"{found}; use workers={config.devices}")
    if request.place is not None and request.place.size > 1:
        return _on_torchrun(request, request.place)
    mpi_rank = mpiexec.rank_and_size()
    if config.transport == "mpi" and mpi_rank is None:
        return _on_mpiexec(request)
    if mpi_rank is not None:
        if config.transport == "mpi":
            return _as_mpi_rank(request, *mpi_rank)
        if mpi_rank[0]:
            return ConfigError.exit_code  # rank 0 prints the error
        found = f"transport={config.transport} does not work in {mpi_rank[1]} processes of mpiexec"
        raise ConfigError(f"{found}; use transport=mpi")
    from paragan.runs.train import train_run

    with install() as interrupt:
        return train_run(replace(request, place=None), interrupt)


def _on_torchrun(request: RunRequest, place: RankEnv) -> int:
    config = request.config
    if config.transport == "mpi":
        hint = "use transport=gloo, or mpiexec instead of torchrun"
        raise ConfigError(f"transport=mpi does not work under torchrun; {hint}")
    import torch

    from paragan.distributed.launch.join import destroy_groups, join

    # they exchange messages on the host, on any device
    world = join(place, torch.device("cpu"), config.train.timeout_s)
    store = world.store
    assert store is not None

    def receive() -> str:
        return store.get("coordinator").decode()  # ends with the store's time-out

    processes = ExternalWorkers(place.rank, place.size, lambda text: store.set("coordinator", text), receive)
    try:
        with install(patient=True, message="") if place.rank else install() as interrupt:
            return _train_together(request, processes, interrupt)
    finally:
        destroy_groups(world)


def _on_mpiexec(request: RunRequest) -> int:
    """Launch the requested number of workers and a coordinator."""
    config = request.config
    out = request.out
    if config.workers is None:
        hint = "pass workers=N, or put mpiexec before the command"
        raise ConfigError(f"workers is required for transport=mpi; {hint}")
    RunFolder(out).refuse_in_use()
    with install() as interrupt:
        interrupt.patient = True
        job = mpiexec.MpiJob(request.arguments, config.workers + 1, out, config.train.timeout_s)
        code, reason = mpiexec.launch_mpi(job, interrupt)
    if reason:
        if exit_status.lacks_exit(out):
            with suppress(CheckpointError), RunFolder(out):  # another process may use it now
                exit_status.write_run_exit(out, code, reason)
        print(reason, file=sys.stderr)
    return code


def _as_mpi_rank(request: RunRequest, rank: int, size: int) -> int:
    """Train as one process of mpiexec; our launcher reads the exit status of rank 0."""
    run = os.environ.get(mpiexec.RUN)
    error: BaseException | None = None
    code = 1
    interrupt = (
        install(patient=True, message="") if rank or run else install()
    )  # installed until the process ends, as mpiexec does
    try:
        code = _train_together(request, _mpi_processes(request.config), interrupt)
        return code
    except BaseException as raised:
        error = raised
        code = outcome(raised)[0]
        raise
    finally:
        if rank == 0 and run:
            with suppress(OSError, CheckpointError):  # a full disk must not hide the error
                place = RankEnv(rank, size, rank, size, run_id=run)
                exit_status.write_rank_exit(request.out, place, error, code, str(error or ""))


def _mpi_processes(config: RunConfig) -> ExternalWorkers:
    """Return the processes of mpiexec. Initialises MPI."""
    from paragan.distributed.transports.mpi_communicator import MpiWorld

    world = MpiWorld()
    timeout_s = config.train.timeout_s

    def send(text: str) -> None:
        world.broadcast_text(text, timeout_s)

    return ExternalWorkers(world.rank, world.size, send, lambda: world.receive_text(timeout_s), mpi=True)


def _train_together(request: RunRequest, processes: ExternalWorkers, interrupt: Interrupt) -> int:
    """Train a grid under torchrun or mpiexec: rank 0 coordinates, the others are workers."""
    if processes.rank:
        return run_worker(with_num_workers(request.config, processes), processes)
    from paragan.runs.train import train_run

    try:
        config = with_num_workers(request.config, processes)
        request = replace(request, config=config, place=None, external_workers=processes)
        return train_run(request, interrupt)
    finally:
        if not processes.has_broadcast:
            with suppress(RankError, OSError):
                processes.broadcast({})  # no work for the workers: this process reports the reason


def with_num_workers(config: RunConfig, processes: ExternalWorkers) -> RunConfig:
    """Return the config with one worker for each rank except the coordinator's."""
    others = processes.size - 1
    if config.workers not in (None, others):
        raise ConfigError(
            f"workers={config.workers} does not fit {processes.size} processes, which are {others} "
            "workers and the coordinator; leave workers out"
        )
    return replace(config, workers=others)


def run_worker(config: RunConfig, processes: ExternalWorkers) -> int:
    """Run a worker until the coordinator ends it; return the exit code."""
    from paragan.build.worker import join_coordinator

    message = processes.receive()
    if "token" not in message:  # the coordinator failed to start, and prints why
        return 0
    address = message["token"], message["host"], int(message["port"])
    if why := join_coordinator(*address, lambda text: None, str(processes.rank - 1), processes, dump(config)):
        raise RankError(f"worker {processes.rank}: {why}")
    return 0
