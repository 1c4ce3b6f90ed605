"""Start of a training run: in this process, as one of several ranks, or on launched ranks.

A grid trains in this process with the workers that it starts, or as a process of torchrun or
mpiexec: rank 0 coordinates, the others are workers, which print errors only. torch is imported only
if this process trains, or to count the accelerators.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace

from paragan.config import RunConfig, dump
from paragan.core.errors import ConfigError, ParaganError, RankError, is_out_of_memory
from paragan.core.interrupt import Interrupt, install
from paragan.core.printable import print_line
from paragan.core.process_environment import num_cores
from paragan.distributed.launch import exit_status, launcher
from paragan.distributed.launch.launcher import Job
from paragan.distributed.launch.rank_env import RankEnv, from_environment, mpi_rank_and_size
from paragan.extensions.grid.workers.external_workers import ExternalWorkers
from paragan.runs.folder import RunFolder
from paragan.runs.run_request import RunRequest

_STATE = ("weights", "gradients", "optimizer", "ema")


def start_training(request: RunRequest) -> int:
    """Train in the run folder, on the devices or workers of the config; return the exit code."""
    request = replace(request, place=from_environment())
    with mirroring(request):
        if request.config.grid is not None:
            return start_grid(request)
        if request.place is not None:
            return _train_as_rank(request, request.place)
        with install() as interrupt:
            devices = count_devices(request.config)
            if devices > 1:
                return _launch(request, devices, interrupt)
            from paragan.runs.train import train_run

            try:
                return train_run(request, interrupt)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                shortage = str(error).partition("\n")[0][:200] or type(error).__name__
            # Outside of the handler, because the error refers to what fills the memory.
            raise ConfigError(f"out of memory: {shortage}; {_advise_on_memory(request)}")


def _advise_on_memory(request: RunRequest) -> str:
    """Return what a step needs by its plan, and what divides it between ranks."""
    from paragan.extensions.planning.plan_run import PlanRequest, plan_run

    gc.collect()
    small = "lower train.batch or the model's width"
    if request.model is not None or request.config.grid is not None:
        return small
    try:
        memory = plan_run(PlanRequest(request.config, request.name)).memory
    except (ParaganError, RuntimeError, MemoryError):
        return small  # without the numbers
    state = sum(memory.terms.get(name, 0) for name in _STATE)
    needs = f"a step needs {memory.peak_bytes / 1e9:.2f} GB in addition to the libraries, by its plan"
    parts = f"{state / 1e9:.2f} GB of them for weights, gradients, optimizer and average"
    return (
        f"{needs}, {parts}: pass devices=2 g.strategy=zero3 d.strategy=zero3, or pipeline for both, "
        f"which divide these between ranks; or {small}"
    )


def mirroring(request: RunRequest) -> AbstractContextManager[None]:
    """Mirror the working folder of a run at an address, if that is the task of this process."""
    if not request.address or _is_mirrored_by_another(request.place):
        return nullcontext()
    from paragan.extensions.buckets.remote_run import mirrored

    return mirrored(request)


def _is_mirrored_by_another(place: RankEnv | None) -> bool:
    """Return whether another process mirrors the run: our launcher, or rank 0 of another one."""
    if place is not None:
        return place.rank > 0 or place.lock_fd is not None
    rank_and_size = mpi_rank_and_size()
    return rank_and_size is not None and rank_and_size[0] > 0


def _launch(request: RunRequest, devices: int, interrupt: Interrupt) -> int:
    """Start a rank for each device of this host, and wait for them."""
    config = request.config
    if config.train.batch < devices:
        raise ConfigError(
            f"devices={devices} is more than train.batch={config.train.batch}: each device "
            "needs an image; lower devices or raise train.batch"
        )
    interrupt.patient = True
    with RunFolder(request.out) as folder:  # raises for a run folder in use, before any change
        if devices > num_cores() and config.devices and not _accelerators():
            text = f"{devices} processes share {num_cores()} cores; fewer may be faster"
            print(f"warning: {text}", file=sys.stderr)
        job = Job(request.arguments, request.out, devices, config.train.timeout_s, folder.lock)
        return launcher.launch_ranks(job, interrupt)


def _train_as_rank(request: RunRequest, place: RankEnv) -> int:
    """Train as one of several ranks. Rank 0 prints; a final failure is not repeated."""
    if place.rank:
        os.dup2(2, 1)  # custom code prints on every rank
    if (before := exit_status.final_failure(request.out, place)) is not None:
        return before.code
    message = "" if place.rank else "stopping after this step"
    with install(patient=True, message=message) as interrupt:
        if place.rank == 0 and exit_status.is_owned(request.out, place):
            last = exit_status.first_failure(exit_status.read_all(request.out, place.run_id))
            if last is not None:
                print_line(f"restarting from the last checkpoint: {last.reason}")
        from paragan.runs.train import train_run

        return train_run(request, interrupt)


def count_devices(config: RunConfig) -> int:
    """Return the ranks of a run on this host: `devices`, all accelerators, or one process."""
    return config.devices or max(1, _accelerators())


def _accelerators() -> int:
    from paragan.hardware.device import num_accelerators

    return num_accelerators()


def start_grid(request: RunRequest) -> int:
    """Train a grid in the run folder; return the exit code."""
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
            f"transport=mpi requires mpiexec; put `mpiexec -n {(config.workers or 4) + 1}` before the command, one "
            "process for each worker and one for the coordinator, or use transport=gloo"
        )
    from paragan.runs.train import train_run

    with install() as interrupt:
        return train_run(replace(request, place=None), interrupt)


def _on_torchrun(request: RunRequest, place: RankEnv) -> int:
    config = request.config
    if config.transport == "mpi":
        raise ConfigError(
            "transport=mpi does not work under torchrun; use transport=gloo, or mpiexec instead of torchrun"
        )
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


def _on_mpiexec(request: RunRequest, rank: int) -> int:
    """Train as one process of mpiexec, which decides how long to wait after a signal."""
    # not restored: mpiexec sends signals until the process ends
    interrupt = install(patient=True, message="" if rank else "stopping after this step")
    return _train_together(request, _mpi_processes(request.config), interrupt)


def _mpi_processes(config: RunConfig) -> ExternalWorkers:
    """Return the processes of mpiexec. Initialises MPI."""
    from paragan.extensions.grid.transports.mpi_communicator import MpiWorld

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
    from paragan.extensions.grid.build.worker import join_coordinator

    message = processes.receive()
    if "token" not in message:  # the coordinator failed to start, and prints why
        return 0
    address = message["token"], message["host"], int(message["port"])
    if why := join_coordinator(*address, lambda text: None, str(processes.rank - 1), processes, dump(config)):
        raise RankError(f"worker {processes.rank}: {why}")
    return 0
