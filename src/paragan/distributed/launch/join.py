"""Rendezvous: the ranks of a run connect and become a `World`.

Ranks that our launcher started meet in a file, those of torchrun in its store.

torchrun may give a restarted rank the store of the earlier ranks, where gloo would find the
addresses of ended processes. It provides no number that all agents share, not even of the attempt:
on several hosts only the agent whose process ended counts it. So each rank announces a random word,
rank 0 answers each word with the name of a fresh round, and everything else is stored under that
name. Replies to stale ranks are ignored.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paragan.core.dist import World, serve_store
from paragan.core.errors import ParaganError, RankError, StoppedError
from paragan.core.process_environment import temporary_variables
from paragan.distributed.launch.rank_env import RESUME_HINT, RankEnv, loopback_environment, rendezvous_is_dynamic

_PAUSE_S = 0.02
_GLOO_THREAD = "pt_gloo_runloop"
_UNPICKLES = (
    "warning: torchrun's c10d rendezvous listens on every network interface and unpickles what "
    "it receives; use devices=N on one host, --rdzv-backend=static on several, and a trusted "
    "network"
)


def join(
    place: RankEnv | None,
    device: torch.device,
    timeout_s: float,
    stopped: Callable[[], bool] = lambda: False,
    alone_group: bool = False,
) -> World:
    """Connect the ranks and return the world of this process.

    place None, or of one process: a world of one rank, with a process group if `alone_group` is set
    (some strategies need one). stopped: polled while waiting. Every wait ends after `timeout_s`.
    Raises `RankError` that names the missing ranks, `StoppedError` if it was stopped.
    """
    patience = timedelta(seconds=timeout_s)
    if place is None or place.size == 1:
        return _single_rank_world(device, patience) if alone_group else World(device=device)
    try:
        if place.size == place.local_size:  # the user may name another interface
            for name, value in loopback_environment().items():
                os.environ.setdefault(name, value)
        base = (
            _torchrun_store(place, patience)
            if place.store_path is None
            else _file_store(place.store_path, place.size, patience)
        )
        store = _rendezvous(base, place, timeout_s, stopped)
        group, control = _create_groups(store, place.rank, place.size, device, patience)
    except (RuntimeError, OSError) as error:
        first = str(error).partition("\n")[0][:200]
        text = f"{place}: the ranks could not join within {timeout_s:g} s ({first})"
        raise RankError(f"{text}; {RESUME_HINT}") from error
    return World(place.rank, place.size, place.local_rank, place.local_size, device, group, control, store)


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
def lone_rank(device: torch.device) -> Iterator[World]:
    """Yield a world of this process alone in which it computes as a rank of several does.

    Its collectives have one member, and cost what they cost without a network. For measurements:
    results are not those of a run.
    """
    patience = timedelta(seconds=60)
    is_within = dist.is_initialized()
    if is_within:
        backend = dist.get_default_backend_for_device(device)
        here = [dist.get_rank()]
        local: dict[str, Any] = {"use_local_synchronization": True}  # the other ranks need not call this
        groups = [dist.new_group(here, patience, kind, **local) for kind in (backend, "gloo")]
    else:
        with temporary_variables(loopback_environment()):
            groups = list(_create_groups(dist.HashStore(), 0, 1, device, patience))
    world = _LoneRank(0, 2, 0, 2, device, *groups)
    try:
        yield world
    finally:
        if not is_within:
            destroy_groups(world)


@dataclass(frozen=True)
class _LoneRank(World):
    """Rank 0 of two whose other rank always agrees."""

    def share(self, total: int) -> tuple[int, int]:
        return 0, total

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.size

    def gather_tensors(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor] * self.size


def _create_groups(
    store: dist.Store, rank: int, size: int, device: torch.device, patience: timedelta
) -> tuple[dist.ProcessGroup | None, dist.ProcessGroup]:
    """Return the compute group, on the device's backend, and the control group, on the host."""
    backend = dist.get_default_backend_for_device(device)
    own = None if backend == "gloo" else device
    mine = dist.PrefixStore("group", store)
    dist.init_process_group(backend, store=mine, rank=rank, world_size=size, timeout=patience, device_id=own)
    return dist.group.WORLD, dist.new_group(backend="gloo", timeout=patience)


def _file_store(path: str, size: int, patience: timedelta) -> dist.Store:
    """Return a store in a file, which no other process can reach."""
    store = dist.FileStore(path, size)
    store.set_timeout(patience)
    return store


def _torchrun_store(place: RankEnv, patience: timedelta) -> dist.Store:
    """Return torchrun's store, or one that rank 0 serves on the interface of MASTER_ADDR alone."""
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    if place.rank == 0:
        if rendezvous_is_dynamic(place.launcher_pid):
            print(_UNPICKLES, file=sys.stderr)
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return _serve_store(place, host, port, patience)
    return dist.TCPStore(host, port, None, False, patience, wait_for_workers=False)


def _serve_store(place: RankEnv, host: str, port: int, patience: timedelta) -> dist.Store:
    """Serve a store at `host`, on every interface if that names none of this host."""
    spans_hosts = place.size > place.local_size
    if not (spans_hosts and socket.gethostbyname(host).startswith("127.")):
        try:
            return serve_store(host, port, patience)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    text = f"MASTER_ADDR={host} names no interface of this host"
    print(f"warning: {text}; rank 0 listens on all", file=sys.stderr)
    return dist.TCPStore(host, port, None, True, patience, wait_for_workers=False)


def _rendezvous(base: dist.Store, place: RankEnv, timeout_s: float, stopped: Callable[[], bool]) -> dist.Store:
    """Return a store that only the ranks of this start share; each registers its process there."""
    deadline = time.monotonic() + timeout_s
    word = uuid.uuid4().hex
    welcome = f"paragan/welcome/{word}"

    def until(condition: Callable[[], bool]) -> bool:
        while not condition():
            if stopped() or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        return True

    base.set(f"paragan/hello/{place.rank}", word)
    if place.rank == 0:
        base.set(welcome, word)
    if not until(lambda: base.check([welcome])):
        raise _absence_error([0], timeout_s, stopped())
    store = dist.PrefixStore(f"paragan/{base.get(welcome).decode()}", base)
    store.set(f"here/{place.rank}", json.dumps([socket.gethostname(), os.getpid()]))
    greeted: set[bytes] = set()

    def all_here() -> bool:
        if place.rank == 0:
            _answer_hellos(base, place.size, word, greeted)
        return store.check([f"here/{rank}" for rank in range(place.size)])

    if not until(all_here):
        absent = [rank for rank in range(place.size) if not store.check([f"here/{rank}"])]
        raise _absence_error(absent, timeout_s, stopped())
    return store


def _answer_hellos(base: dist.Store, size: int, name: str, greeted: set[bytes]) -> None:
    """Answer every announced word that has not been answered yet."""
    for rank in range(1, size):
        key = f"paragan/hello/{rank}"
        if base.check([key]) and (word := base.get(key)) not in greeted:
            base.set(f"paragan/welcome/{word.decode()}", name)
            greeted.add(word)


def _absence_error(ranks: list[int], timeout_s: float, is_stopped: bool) -> ParaganError:
    if is_stopped:
        return StoppedError("stopped before the first step")
    named = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return RankError(f"rank {named} failed or did not join within {timeout_s:g} s; {RESUME_HINT}")
