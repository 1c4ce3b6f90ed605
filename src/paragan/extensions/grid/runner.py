"""Runner of a grid: in one process, with workers that it starts, or as a process of torchrun or mpiexec.

Rank 0 of torchrun or mpiexec coordinates; the others are workers, which print errors only.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from paragan.config import RunConfig, dump
from paragan.core.dist import World
from paragan.core.errors import ConfigError, RankError
from paragan.core.interrupt import Interrupt, install
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import RankEnv, mpi_rank_and_size
from paragan.extensions.grid.build.coordinator import evolution_on_workers
from paragan.extensions.grid.build.trainer import evolution
from paragan.extensions.grid.build.worker import join_coordinator
from paragan.extensions.grid.evolution import Evolution
from paragan.extensions.grid.workers.handshake import ExternalWorkers
from paragan.runs.run_request import Log, Runner, RunRequest
from paragan.runs.train import train_run


class GridRunner(Runner):
    """Runner of a grid. external_workers: processes that wait to be its workers."""

    def __init__(self, external_workers: ExternalWorkers | None = None) -> None:
        self.external_workers = external_workers

    def start(self, request: RunRequest) -> int:
        """Train a grid in the run folder, as a process of torchrun, of mpiexec, or alone; return the exit code."""
        config = request.config
        if config.devices not in (None, 1):
            raise ConfigError(f"devices={config.devices} does not apply to a grid; use workers={config.devices}")
        if request.place is not None and request.place.size > 1:
            return _on_torchrun(request, request.place)
        rank_and_size = mpi_rank_and_size()
        if rank_and_size is not None:
            rank, size = rank_and_size
            if config.transport == "mpi":
                return _on_mpiexec(request, rank)
            if rank:
                return ConfigError.exit_code  # rank 0 prints the error
            raise ConfigError(
                f"transport={config.transport} does not work in {size} processes of mpiexec; use transport=mpi"
            )
        if config.transport == "mpi":
            raise ConfigError(
                f"transport=mpi requires mpiexec; put `mpiexec -n {(config.workers or 4) + 1}` before the command, "
                "one process for each worker and one for the coordinator, or use transport=gloo"
            )
        with install() as interrupt:
            return train_run(replace(request, place=None), interrupt)

    def trainer(self, request: RunRequest, world: World, log: Log, stop: Callable[[], bool]) -> Evolution:
        if world.size > 1:
            raise ConfigError(f"devices={world.size} is not available for a grid; set workers to share out its cells")
        if request.config.workers is not None:
            return evolution_on_workers(request.config, request.out, log, stop, self.external_workers)
        return evolution(request.config, request.out, log, stop)

    def open(self, config: RunConfig, folder: Path, log: Log) -> Evolution:
        return evolution(config, folder, log, lambda: False, reading=True)

    def start_lines(self, config: RunConfig) -> Sequence[str]:
        """Return a line about a grid whose length is no whole number of generations."""
        num_steps = len(config.max_steps)
        if config.grid is None or num_steps % config.grid.batches == 0:
            return []
        generations = -(-num_steps // config.grid.batches)
        kimg = generations * config.images_per_report / 1000
        return [f"length    {generations} whole generations, {kimg:g} kimg instead of {config.train.kimg:g}"]


def make_runner() -> GridRunner:
    """Return the runner that `runs.run_request` looks for."""
    return GridRunner()


def _on_torchrun(request: RunRequest, place: RankEnv) -> int:
    """Train as one process of torchrun."""
    config = request.config
    if config.transport == "mpi":
        raise ConfigError(
            "transport=mpi does not work under torchrun; use transport=gloo, or mpiexec instead of torchrun"
        )
    # the processes exchange messages on the host, whatever device they train on
    world = join(place, torch.device("cpu"), config.train.timeout_s)
    store = world.store
    assert store is not None

    processes = ExternalWorkers(
        rank=place.rank,
        size=place.size,
        broadcast_text=lambda text: store.set("coordinator", text),
        receive_text=lambda: store.get("coordinator").decode(),  # ends with the store's time-out
    )
    try:
        with install(patient=True, message="") if place.rank else install() as interrupt:
            return _train_together(request, processes, interrupt)
    finally:
        destroy_groups(world)


def _on_mpiexec(request: RunRequest, rank: int) -> int:
    """Train as one process of mpiexec, which decides how long to wait after a signal."""
    from paragan.extensions.grid.transports.mpi_communicator import MpiWorld  # initialises MPI

    # not restored: mpiexec sends signals until the process ends
    interrupt = install(patient=True, message="" if rank else "stopping after this step")
    world = MpiWorld()
    timeout_s = request.config.train.timeout_s
    processes = ExternalWorkers(
        rank=world.rank,
        size=world.size,
        broadcast_text=lambda text: world.broadcast_text(text, timeout_s),
        receive_text=lambda: world.receive_text(timeout_s),
        mpi=True,
    )
    return _train_together(request, processes, interrupt)


def _train_together(request: RunRequest, processes: ExternalWorkers, interrupt: Interrupt) -> int:
    """Train a grid under torchrun or mpiexec: rank 0 coordinates, the others are workers."""
    if processes.rank:
        return run_worker(with_num_workers(request.config, processes), processes)
    try:
        config = with_num_workers(request.config, processes)
        request = replace(request, config=config, place=None)
        return train_run(request, interrupt, GridRunner(processes))
    finally:
        if not processes.has_broadcast:
            with suppress(RankError, OSError):
                processes.broadcast({})  # no work for the workers: this process reports the reason


def with_num_workers(config: RunConfig, processes: ExternalWorkers) -> RunConfig:
    """Return the config with one worker for each rank except the coordinator's."""
    num_workers = processes.size - 1
    if config.workers not in (None, num_workers):
        raise ConfigError(
            f"workers={config.workers} does not fit {processes.size} processes, which are {num_workers} "
            "workers and the coordinator; leave workers out"
        )
    return replace(config, workers=num_workers)


def run_worker(config: RunConfig, processes: ExternalWorkers) -> int:
    """Run a worker until the coordinator ends it; return the exit code."""
    message = processes.receive()
    if "token" not in message:  # the coordinator failed to start, and prints why
        return 0
    error = join_coordinator(
        message["token"],
        message["host"],
        int(message["port"]),
        lambda text: None,
        str(processes.rank - 1),
        processes,
        dump(config),
    )
    if error:
        raise RankError(f"worker {processes.rank}: {error}")
    return 0
