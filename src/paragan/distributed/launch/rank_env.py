"""Rank of this process under torchrun, our launcher or mpiexec, from its environment. Imports no torch."""

import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paragan.core.errors import ConfigError

LAUNCHER = "PARAGAN_LAUNCHER"  # process id of our launcher
STORE = "PARAGAN_STORE"  # path of the store file of the launcher's ranks
LOCK = "PARAGAN_LOCK"  # descriptor of the run folder's lock, held by the launcher
RESUME_HINT = "the last checkpoint is intact; run the same command to resume"
_MPI_NUMBERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
)
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True, kw_only=True)
class RankEnv:
    """A rank and its launcher.

    local_rank, local_size: among the ranks of this host. attempt: 0, and one more after each restart. run_id,
    launcher_pid: of the launcher, ours or torchrun; 0: unknown. store_path: the file in which all ranks meet, if they
    are on one host; None: at MASTER_ADDR. lock_fd: descriptor of the run folder's lock, if the launcher holds it.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    attempt: int = 0
    run_id: str = "none"
    launcher_pid: int = 0
    store_path: str | None = None
    lock_fd: int | None = None

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def is_orphaned(self) -> bool:
        """Return whether the launcher has ended: no process would end this run or report it."""
        return os.getppid() != self.launcher_pid


def from_environment(environment: Mapping[str, str] | None = None) -> RankEnv | None:
    """Return this process's rank, None if alone. `ConfigError`: the environment is incomplete."""
    env = os.environ if environment is None else environment
    if "LOCAL_RANK" not in env:  # clusters set RANK and WORLD_SIZE in all their containers
        return None
    expected = _NUMBERS if STORE in env else (*_NUMBERS, "MASTER_PORT")
    invalid = [name for name in expected if not env.get(name, "").isdecimal()]
    if STORE not in env and not env.get("MASTER_ADDR"):
        invalid.append("MASTER_ADDR")
    if invalid:
        raise ConfigError(
            f"environment: LOCAL_RANK is set but {invalid[0]}={env.get(invalid[0], '')!r}, which "
            "torchrun always sets; start ranks with torchrun or devices=N, or unset LOCAL_RANK"
        )
    rank, size, local_rank, local_size = (int(env[name]) for name in _NUMBERS)
    if not (rank < size and local_rank < local_size <= size):
        raise ConfigError(
            f"environment: rank {rank} of {size}, on this host {local_rank} of {local_size}, is impossible; start "
            "ranks with torchrun or devices=N"
        )
    return RankEnv(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        attempt=_integer(env, "TORCHELASTIC_RESTART_COUNT") or 0,
        run_id=env.get("TORCHELASTIC_RUN_ID", "none"),
        launcher_pid=_integer(env, LAUNCHER) or os.getppid(),
        store_path=env.get(STORE),
        lock_fd=_integer(env, LOCK),
    )


def mpi_rank_and_size(environment: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """Return rank and size under mpiexec (or srun with PMI); None elsewhere or for one process."""
    env = os.environ if environment is None else environment
    for rank, size in _MPI_NUMBERS:
        if env.get(rank, "").isdecimal() and env.get(size, "").isdecimal() and int(env[size]) > 1:
            return int(env[rank]), int(env[size])
    return None


def rendezvous_is_dynamic(agent: int, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether the torchrun of this process id uses c10d, which unpickles; False if it cannot be read."""
    env = os.environ if environment is None else environment
    # torchrun reads the defaults of its options from variables PET_…
    if env.get("PET_RDZV_BACKEND") == "c10d" or env.get("PET_STANDALONE") == "1":
        return True
    try:
        words = Path(f"/proc/{agent}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return "--standalone" in words or any("c10d" in (w, w.partition("=")[2]) for w in words)


def process_key(rank: int) -> str:
    """Return the key under which a rank's host and process id are in the store of the ranks, as JSON."""
    return f"here/{rank}"


def rank_environment(rank: int, size: int, store: str) -> dict[str, str]:
    """Return the variables that `from_environment` reads. store: path of `create_store_file`."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    texts = {name: str(number) for name, number in numbers.items()}
    return texts | {STORE: store} | loopback_environment()


def loopback_environment() -> dict[str, str]:
    """Return variables that confine gloo and NCCL to the loopback interface of this host, if it is known."""
    names = [name for _, name in socket.if_nameindex()]
    for interface in ("lo", "lo0"):
        if interface in names:
            return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}  # "=": exactly this name
    return {}


def create_store_file() -> tuple[int, str]:
    """Create a file in which ranks of this host can meet; return its descriptor and path.

    The path is for processes that inherit the descriptor. On Linux the file is in memory, has no
    name, and ends with the last process that holds it. Elsewhere torch removes it at the end.
    """
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("paragan-store")
        return file, f"/proc/self/fd/{file}"
    return tempfile.mkstemp(prefix="paragan-store-")


def _integer(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else None
