"""Start of a training run: in this process, as one of several ranks, or on launched ranks.

torch is imported only if this process trains, or to count the accelerators.
"""

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import replace

from paragan.config import RunConfig
from paragan.core.errors import ConfigError, is_out_of_memory
from paragan.core.interrupt import Interrupt, install
from paragan.core.printable import counted, print_line
from paragan.core.process_environment import num_cores
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.rank_env import RankEnv, from_environment
from paragan.runs.folder import RunFolder
from paragan.runs.run_request import RunRequest, check_init, runner_of

LESS_MEMORY = "lower train.batch or the model's width"


def start_training(request: RunRequest, advise_on_memory: Callable[[RunRequest], str] | None = None) -> int:
    """Train in the run folder, on the devices or workers of the config; return the exit code.

    advise_on_memory: returns what to do where the memory does not suffice; None: a smaller run.
    """
    request = replace(request, place=from_environment())
    if request.place is None:
        check_init(request)
    if request.config.extension_key is not None:
        code = runner_of(request.config).start(request)
        if code is not None:
            return code
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
        gc.collect()
        advice = LESS_MEMORY if advise_on_memory is None else advise_on_memory(request)
        raise ConfigError(f"out of memory: {shortage}; {advice}")


def _launch(request: RunRequest, devices: int, interrupt: Interrupt) -> int:
    from paragan.distributed.launch.launcher import Job, launch_ranks

    config = request.config
    if config.train.batch < devices:
        raise ConfigError(
            f"devices={devices} is more than train.batch={config.train.batch}: each device "
            "needs an image; lower devices or raise train.batch"
        )
    interrupt.patient = True
    with RunFolder(request.out) as folder:  # raises for a run folder in use, before any change
        if devices > num_cores() and config.devices and not _accelerators():
            print(
                f"warning: {devices} processes share {counted(num_cores(), 'core')}; fewer may be faster",
                file=sys.stderr,
            )
        job = Job(
            words=request.arguments,
            folder=request.out,
            devices=devices,
            timeout_s=config.train.timeout_s,
            lock_fd=folder.lock,
        )
        return launch_ranks(job, interrupt)


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
