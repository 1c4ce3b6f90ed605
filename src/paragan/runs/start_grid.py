"""Start of a grid run: in this process, on launched workers, or under torchrun or mpiexec.

Under torchrun and mpiexec rank 0 coordinates; the others are workers, which print errors only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from paragan.config import RunConfig, dump, outside_names
from paragan.core.errors import CheckpointError, ConfigError, RankError, outcome
from paragan.core.interrupt import Interrupt, install
from paragan.distributed.launch import exit_status, mpiexec
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.folder import RunFolder


def command_words(config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool) -> tuple[str, ...]:
    """Return the arguments of `train` for the processes that a launcher starts."""
    options = ["--fresh"] if fresh else []
    if outside_names(config):
        options.append("--trust")
    return ("train", recipe, *overrides, "--out", str(out), *options)


def start_grid(
    config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool, place: RankEnv | None
) -> int:
    """Train a grid in the folder `out`; return the exit code."""
    if config.devices not in (None, 1):
        found = f"devices={config.devices} does not apply to a grid"
        raise ConfigError(f"{found}; use workers={config.devices}")
    if place is not None and place.size > 1:
        return _on_torchrun(config, recipe, out, fresh, place)
    mpi_rank = mpiexec.rank_and_size()
    if config.transport == "mpi" and mpi_rank is None:
        return _on_mpiexec(config, recipe, overrides, out, fresh)
    if config.transport == "mpi":
        assert mpi_rank is not None
        return _as_mpi_rank(config, recipe, out, fresh, mpi_rank)
    if mpi_rank is not None:
        if mpi_rank[0]:
            return ConfigError.exit_code  # rank 0 prints the error
        found = f"transport={config.transport} does not work in {mpi_rank[1]} processes of mpiexec"
        raise ConfigError(f"{found}; use transport=mpi")
    from paragan.runs.train import train_run

    with install() as interrupt:
        return train_run(config, recipe, out, fresh, interrupt)


def _on_torchrun(config: RunConfig, recipe: str, out: Path, fresh: bool, place: RankEnv) -> int:
    if config.transport == "mpi":
        hint = "use transport=gloo, or mpiexec instead of torchrun"
        raise ConfigError(f"transport=mpi does not work under torchrun; {hint}")
    import torch

    from paragan.core.dist import World
    from paragan.distributed.launch.join import destroy_groups, join

    # they exchange messages on the host, on any device
    store = join(place, torch.device("cpu"), config.train.timeout_s).store
    assert store is not None

    def receive() -> str:
        return store.get("company").decode()  # ends with the store's time-out

    company = ExternalWorkers(place.rank, place.size, lambda text: store.set("company", text), receive)
    try:
        with install(patient=True, message="") if place.rank else install() as interrupt:
            return _train_together(config, recipe, out, fresh, company, interrupt)
    finally:
        destroy_groups(World())


def _on_mpiexec(config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool) -> int:
    """Launch the requested number of workers and a coordinator."""
    if config.workers is None:
        hint = "pass workers=N, or put mpiexec before the command"
        raise ConfigError(f"workers is required for transport=mpi; {hint}")
    RunFolder(out).refuse_in_use()
    words = command_words(config, recipe, overrides, out, fresh)
    with install() as interrupt:
        interrupt.patient = True
        job = mpiexec.MpiJob(words, config.workers + 1, out, config.train.timeout_s)
        code, reason = mpiexec.launch_mpi(job, interrupt)
    if reason:
        if exit_status.lacks_exit(out):
            with suppress(CheckpointError), RunFolder(out):  # another process may use it now
                exit_status.write_run_exit(out, code, reason)
        print(reason, file=sys.stderr)
    return code


def _as_mpi_rank(config: RunConfig, recipe: str, out: Path, fresh: bool, mpi_rank: tuple[int, int]) -> int:
    """Train as one process of mpiexec; our launcher reads the exit status of rank 0."""
    rank, size = mpi_rank
    run = os.environ.get(mpiexec.RUN)
    error: BaseException | None = None
    code = 1
    interrupt = (
        install(patient=True, message="") if rank or run else install()
    )  # installed until the process ends, as mpiexec does
    try:
        code = _train_together(config, recipe, out, fresh, _mpi_processes(config), interrupt)
        return code
    except BaseException as raised:
        error = raised
        code = outcome(raised)[0]
        raise
    finally:
        if rank == 0 and run:
            with suppress(OSError, CheckpointError):  # a full disk must not hide the error
                place = RankEnv(rank, size, rank, size, run_id=run)
                exit_status.write_rank_exit(out, place, error, code, str(error or ""))


def _mpi_processes(config: RunConfig) -> ExternalWorkers:
    """Return the processes of mpiexec. Initialises MPI."""
    from paragan.distributed.transports.mpi_communicator import MpiWorld

    world = MpiWorld()
    timeout_s = config.train.timeout_s

    def send(text: str) -> None:
        world.broadcast_text(text, timeout_s)

    return ExternalWorkers(world.rank, world.size, send, lambda: world.receive_text(timeout_s), mpi=True)


def _train_together(
    config: RunConfig, recipe: str, out: Path, fresh: bool, company: ExternalWorkers, interrupt: Interrupt
) -> int:
    """Train a grid under torchrun or mpiexec: rank 0 coordinates, the others are workers."""
    if company.rank:
        return run_worker(with_num_workers(config, company), company)
    from paragan.runs.train import train_run

    try:
        config = with_num_workers(config, company)
        return train_run(config, recipe, out, fresh, interrupt, company=company)
    finally:
        if not company.has_broadcast:
            with suppress(RankError, OSError):
                company.broadcast({})  # no work for the workers: this process reports the reason


def with_num_workers(config: RunConfig, company: ExternalWorkers) -> RunConfig:
    """Return the config with one worker for each rank except the coordinator's."""
    others = company.size - 1
    if config.workers not in (None, others):
        raise ConfigError(
            f"workers={config.workers} does not fit {company.size} processes, which are {others} "
            "workers and the coordinator; leave workers out"
        )
    return replace(config, workers=others)


def run_worker(config: RunConfig, company: ExternalWorkers) -> int:
    """Run a worker until the coordinator ends it; return the exit code."""
    from paragan.build.worker import join_coordinator

    message = company.receive()
    if "token" not in message:  # the coordinator failed to start, and prints why
        return 0
    address = message["token"], message["host"], int(message["port"])
    if why := join_coordinator(*address, lambda text: None, str(company.rank - 1), company, dump(config)):
        raise RankError(f"worker {company.rank}: {why}")
    return 0
