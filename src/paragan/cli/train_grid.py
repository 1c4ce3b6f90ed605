"""Where `paragan train` with a grid runs: here, on workers that it starts, or as one of many that somebody started."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from paragan.config import RunConfig, outside_names
from paragan.core.errors import CheckpointError, ConfigError, RankError, outcome
from paragan.core.interrupt import Interrupt, install
from paragan.distributed.launch import exit_status, mpiexec
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.folder import RunFolder


def start(
    config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool, place: RankEnv | None
) -> int:
    """Train a grid in the folder `out`; returns the exit code."""
    if config.devices not in (None, 1):
        raise ConfigError(f"devices: found {config.devices} for a grid, expected workers={config.devices} instead")
    if place is not None and place.size > 1:
        return _on_torchrun(config, recipe, out, fresh, place)
    among = mpiexec.rank_and_size()
    if config.transport == "mpi" and among is None:
        return _on_mpiexec(config, recipe, overrides, out, fresh)
    if config.transport == "mpi":
        assert among is not None
        return _as_mpi_rank(config, recipe, out, fresh, among)
    if among is not None:
        if among[0]:
            return ConfigError.exit_code  # the first speaks
        raise ConfigError(
            f"transport: found {config.transport} in {among[1]} processes of mpiexec, expected transport=mpi"
        )
    from paragan.cli.train import run

    with install() as interrupt:
        return run(config, recipe, out, fresh, interrupt)


def _on_torchrun(config: RunConfig, recipe: str, out: Path, fresh: bool, place: RankEnv) -> int:
    if config.transport == "mpi":
        raise ConfigError("transport: found mpi under torchrun, expected gloo, or mpiexec instead of torchrun")
    from paragan.core.dist import World
    from paragan.distributed.launch.join import destroy_groups
    from paragan.runs.grids import of_torchrun

    company = of_torchrun(config, place)
    try:
        with install(patient=True, message="") if place.rank else install() as interrupt:
            return _together(config, recipe, out, fresh, company, interrupt)
    finally:
        destroy_groups(World())


def _on_mpiexec(config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool) -> int:
    """As many workers as are asked for, and a coordinator."""
    if config.workers is None:
        raise ConfigError("workers: found none for transport=mpi, expected workers=N, or mpiexec before the command")
    RunFolder(out).refuse_in_use()
    words = ("train", recipe, *overrides, "--out", str(out), *(["--fresh"] if fresh else []))
    words += ("--trust",) if outside_names(config) else ()
    with install() as interrupt:
        interrupt.patient = True
        code, reason = mpiexec.launch(mpiexec.MpiJob(words, config.workers + 1, out, config.train.timeout_s), interrupt)
    if reason:
        if exit_status.lacks_exit(out):
            with suppress(CheckpointError), RunFolder(out):  # another process may run in it by now
                exit_status.write_exit(out, code, reason)
        print(reason, file=sys.stderr)
    return code


def _as_mpi_rank(config: RunConfig, recipe: str, out: Path, fresh: bool, among: tuple[int, int]) -> int:
    """One process of mpiexec. Our launcher reports requests to stop, and reads how rank 0 ended."""
    rank, size = among
    run = os.environ.get(mpiexec.RUN)
    error, code = None, 1
    interrupt = (
        install(patient=True, message="") if rank or run else install()
    )  # until the process ends: so does mpiexec
    try:
        from paragan.runs.grids import of_mpiexec

        code = _together(config, recipe, out, fresh, of_mpiexec(config), interrupt)
        return code
    except BaseException as raised:
        error, code = raised, outcome(raised)[0]
        raise
    finally:
        if rank == 0 and run:
            with suppress(OSError, CheckpointError):  # a full disk must not hide what went wrong
                exit_status.write(out, RankEnv(rank, size, rank, size, run_id=run), error, code, str(error or ""))


def _together(
    config: RunConfig, recipe: str, out: Path, fresh: bool, company: ExternalWorkers, interrupt: Interrupt
) -> int:
    """Rank 0 is the coordinator, and speaks; the others work."""
    from paragan.runs.grids import serve, staffed

    if company.rank:
        return serve(staffed(config, company), company)
    from paragan.cli.train import run

    try:
        return run(staffed(config, company), recipe, out, fresh, interrupt, company=company)
    finally:
        if not company.has_broadcast:
            with suppress(RankError, OSError):
                company.broadcast({})  # nothing to do: this one tells why
