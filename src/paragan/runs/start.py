"""Start of a training run: in this process, as one of several ranks, or on launched ranks.

torch is imported only if this process trains, or to count the accelerators.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.errors import ConfigError
from paragan.core.interrupt import install
from paragan.core.printable import to_printable
from paragan.core.process_environment import num_cores
from paragan.distributed.launch import exit_status, launcher
from paragan.distributed.launch.launcher import Job
from paragan.distributed.launch.rank_env import RankEnv, from_environment
from paragan.runs.folder import RunFolder
from paragan.runs.start_grid import command_words, start_grid


def start_training(config: RunConfig, recipe: str, overrides: Sequence[str], out: Path, fresh: bool) -> int:
    """Train `config` in the folder `out`; return the exit code."""
    place = from_environment()
    if config.grid is not None:
        return start_grid(config, recipe, overrides, out, fresh, place)
    if place is not None:
        return _train_as_rank(place, config, recipe, out, fresh)
    with install() as interrupt:
        devices = _devices(config)
        if devices == 1:
            from paragan.runs.train import train_run

            return train_run(config, recipe, out, fresh, interrupt)
        if config.train.batch < devices:
            raise ConfigError(
                f"devices={devices} is more than train.batch={config.train.batch}: each device "
                "needs an image; lower devices or raise train.batch"
            )
        interrupt.patient = True
        words = command_words(config, recipe, overrides, out, fresh)
        with RunFolder(out) as folder:  # raises for a run folder in use, before any change
            if devices > num_cores() and config.devices and not _accelerators():
                text = f"{devices} processes share {num_cores()} cores; fewer may be faster"
                print(f"warning: {text}", file=sys.stderr)
            job = Job(words, out, devices, config.train.timeout_s, folder.lock)
            return launcher.launch_ranks(job, interrupt)


def _train_as_rank(place: RankEnv, config: RunConfig, recipe: str, out: Path, fresh: bool) -> int:
    """Train as one of several ranks. Rank 0 prints; a final failure is not repeated."""
    if place.rank:
        os.dup2(2, 1)  # custom code prints on every rank
    if (before := exit_status.final_failure(out, place)) is not None:
        return before.code
    message = "" if place.rank else "stopping after this step"
    with install(patient=True, message=message) as interrupt:
        if (
            place.rank == 0
            and exit_status.is_owned(out, place)
            and (last := exit_status.first_failure(exit_status.read_all(out, place.run_id)))
        ):
            print(to_printable(f"restarting from the last checkpoint: {last.reason}"), flush=True)
        from paragan.runs.train import train_run

        return train_run(config, recipe, out, fresh, interrupt, place)


def _devices(config: RunConfig) -> int:
    return config.devices or max(1, _accelerators())


def _accelerators() -> int:
    from paragan.hardware.device import num_accelerators

    return num_accelerators()
