"""Process groups: the ranks of a run connect and become a `World`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.core.dist import Collective, World
from paragan.core.errors import RankError
from paragan.core.process_environment import temporary_variables
from paragan.distributed.launch.rank_env import RESUME_HINT, RankEnv, loopback_environment
from paragan.distributed.launch.rendezvous import meet

_PAUSE_S = 0.02
_GLOO_THREAD = "pt_gloo_runloop"


def join(
    env: RankEnv | None,
    device: torch.device,
    timeout_s: float,
    stopped: Callable[[], bool] = lambda: False,
    alone_group: bool = False,
) -> World:
    """Connect the ranks and return the world of this process.

    env: None, or of one process: a world of one rank, with a process group if `alone_group` is set
    (some strategies need one). stopped: polled while waiting. Every wait ends after `timeout_s`.
    Raises `RankError` that names the missing ranks, `StoppedError` if it was stopped.
    """
    patience = timedelta(seconds=timeout_s)
    if env is None or env.size == 1:
        return _single_rank_world(device, patience) if alone_group else World(device=device)
    try:
        if env.size == env.local_size:  # the user may name another interface
            for name, value in loopback_environment().items():
                os.environ.setdefault(name, value)
        store = meet(env, timeout_s, stopped)
        group, control = _create_groups(store, env.rank, env.size, device, patience)
    except (RuntimeError, OSError) as error:
        first = str(error).partition("\n")[0][:200]
        raise RankError(f"{env}: the ranks could not join within {timeout_s:g} s ({first}); {RESUME_HINT}") from error
    return World(
        rank=env.rank,
        size=env.size,
        local_rank=env.local_rank,
        local_size=env.local_size,
        device=device,
        group=group,
        control=control,
        store=store,
    )


def destroy_groups(world: World) -> None:
    """Destroy the process groups, without waiting for other ranks."""
    if world.group is not None:
        dist.destroy_process_group()
        _wait_for_gloo_threads()


def _wait_for_gloo_threads(timeout_s: float = 5.0) -> None:
    """Wait until the threads of gloo groups that something still references are idle (Linux).

    Such a thread drops its tensors some time after the collective has returned, and needs the GIL
    for it. Where Python has begun to end by then, the process aborts. DDP's group, for example, is
    referenced to the end: it is a default argument in `torch.distributed.nn`.
    """
    deadline = time.monotonic() + timeout_s
    idle_looks = 0
    # twice: a thread that slept at one look may have been about to wake
    while idle_looks < 2 and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)  # releases the GIL: a thread that waits for it runs now
        idle_looks = 0 if _any_gloo_thread_runs() else idle_looks + 1


def _any_gloo_thread_runs() -> bool:
    for stat in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            name, _, state = stat.read_text().partition("(")[2].rpartition(") ")
            if name == _GLOO_THREAD and state.startswith("R"):
                return True
    return False


def _single_rank_world(device: torch.device, patience: timedelta) -> World:
    """Return a world with a group of one, confined to this process and the loopback interface."""
    with temporary_variables(loopback_environment()):
        group, control = _create_groups(dist.HashStore(), 0, 1, device, patience)
    return World(device=device, group=group, control=control)


@contextmanager
def lone_rank(device: torch.device) -> Iterator[LoneRank]:
    """Yield a world of this process alone in which it computes as a rank of several does.

    Its collectives have one member, and cost what they cost without a network. For measurements:
    results are not those of a run.
    """
    patience = timedelta(seconds=60)
    is_within = dist.is_initialized()
    if is_within:
        backend = dist.get_default_backend_for_device(device)
        # local: the other ranks need not call this
        new_group = partial(dist.new_group, [dist.get_rank()], patience, use_local_synchronization=True)
        group, control = new_group(backend), new_group("gloo")
    else:
        alone = _single_rank_world(device, patience)
        group, control = alone.group, alone.control
    world = LoneRank(rank=0, size=2, local_rank=0, local_size=2, device=device, group=group, control=control)
    try:
        yield world
    finally:
        if not is_within:
            destroy_groups(world)


@dataclass(frozen=True, kw_only=True)
class LoneRank(World):
    """Rank 0 of two whose other rank always agrees. calls: number of collectives by kind."""

    calls: Counter[str] = field(default_factory=Counter, compare=False)

    def share(self, total: int) -> tuple[int, int]:
        return 0, total

    def gather_tensors(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor] * self.size

    def count_bytes(
        self, kind: str, num_bytes: int, collective: Collective = Collective.ALL_REDUCE, num_ranks: int | None = None
    ) -> None:
        self.calls[kind] += 1
        super().count_bytes(kind, num_bytes, collective, num_ranks)


def _create_groups(
    store: dist.Store, rank: int, size: int, device: torch.device, patience: timedelta
) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup]:
    """Return the compute group, on the device's backend, and the control group, on the host."""
    backend = dist.get_default_backend_for_device(device)
    # torch would else guess NCCL's device from the rank
    device_id = None if backend == "gloo" else _with_index(device)
    prefixed = dist.PrefixStore("group", store)  # links and communicators use the same store, under other names
    dist.init_process_group(backend, store=prefixed, rank=rank, world_size=size, timeout=patience, device_id=device_id)
    return dist.group.WORLD, dist.new_group(backend="gloo", timeout=patience)


def _with_index(device: torch.device) -> torch.device:
    """Return `cuda` as `cuda:N` of the current device, which NCCL wants."""
    if device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())
