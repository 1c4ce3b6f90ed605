"""Which of the processes that torchrun started this one is, from the environment alone. Nothing here imports torch."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from paragan.core.errors import ConfigError

LAUNCHER = "PARAGAN_LAUNCHER"  # the process id of our own launcher, told to its ranks
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
GOES_ON = "the last checkpoint stands; the same command goes on"
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """rank of size; local: on this host. attempt: 0, and one more after each restart. run: torchrun's id of the run.

    agent, launcher: process ids of the torchrun that started this process, and of the `paragan train` that started
    that, if one did.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    attempt: int = 0
    run: str = "none"
    agent: int = 0
    launcher: int | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def orphaned(self) -> bool:
        """Whether torchrun or the launcher above it is gone: nobody would hear of this run, or end it."""
        return os.getppid() != self.agent or (self.launcher is not None and not alive(self.launcher))


def here(environment: Mapping[str, str] | None = None) -> Place | None:
    """This process under torchrun; None for one started alone. Half an environment is a `ConfigError`."""
    env = os.environ if environment is None else environment
    if "LOCAL_RANK" not in env:  # clusters set RANK and WORLD_SIZE for whatever starts in their containers
        return None
    found = {name: env.get(name, "") for name in _NUMBERS}
    odd = next((name for name, value in found.items() if not value.isdecimal()), None)
    if odd is not None or not env.get("MASTER_ADDR"):
        raise ConfigError(
            f"environment: found LOCAL_RANK but {odd or 'MASTER_ADDR'}={found.get(odd or '', '')!r}, expected all that "
            "torchrun sets; start ranks with torchrun or devices=N, or unset LOCAL_RANK"
        )
    rank, size, local_rank, local_size, _ = map(int, found.values())
    if not (rank < size and local_rank < local_size <= size):
        raise ConfigError(f"environment: found rank {rank} of {size}, on this host {local_rank} of {local_size}")
    attempt = _number(env, "TORCHELASTIC_RESTART_COUNT")
    launcher = _number(env, LAUNCHER) or None
    run = env.get("TORCHELASTIC_RUN_ID", "none")
    return Place(rank, size, local_rank, local_size, attempt, run, os.getppid(), launcher)


def alive(pid: int) -> bool:
    """Whether a process of this host still runs; one that has ended and waits to be read does not."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # somebody else's, or a system without /proc
        return True


def loopback() -> str | None:
    """The interface that never leaves this host, by name."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)


def num_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _number(env: Mapping[str, str], name: str) -> int:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else 0
