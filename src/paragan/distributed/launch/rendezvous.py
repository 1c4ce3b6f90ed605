"""Rendezvous: the ranks of one start find one another in a store.

Ranks that our launcher started meet in a file, those of torchrun in its store.

torchrun may give a restarted rank the store of the earlier ranks, where gloo would find the addresses of ended
processes. It provides no number that all agents share, not even of the attempt: on several hosts only the agent whose
process ended counts it. So each rank announces a random word, rank 0 answers each word with the name of a fresh
round, and everything else is stored under that name. Replies to stale ranks are ignored.
"""

import errno
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from paragan.core.dist import serve_store
from paragan.core.errors import RankError, StoppedError
from paragan.core.printable import join_some
from paragan.distributed.launch.rank_env import RESUME_HINT, RankEnv, process_key, rendezvous_is_dynamic

_PAUSE_S = 0.02
_CONNECT_S = 1.0
_UNPICKLES = (
    "warning: torchrun's c10d rendezvous listens on every network interface and unpickles what it receives; use "
    "devices=N on one host, --rdzv-backend=static on several, and a trusted network"
)


class _Wait:
    """Waits of one rendezvous, which share a time-out. stopped: polled."""

    def __init__(self, timeout_s: float, stopped: Callable[[], bool]) -> None:
        self.timeout_s = timeout_s
        self._stopped = stopped
        self._deadline = time.monotonic() + timeout_s

    def until(self, condition: Callable[[], bool], absent: Callable[[], list[int]] = lambda: [0]) -> None:
        """Wait for a condition. Raises `RankError` that names the absent ranks, `StoppedError`."""
        while not condition():
            if self._stopped():
                raise StoppedError("stopped before the first step")
            if time.monotonic() > self._deadline:
                named = join_some(absent(), limit=8)
                raise RankError(f"rank {named} failed or did not join within {self.timeout_s:g} s; {RESUME_HINT}")
            time.sleep(_PAUSE_S)


def meet(env: RankEnv, timeout_s: float, stopped: Callable[[], bool]) -> dist.Store:
    """Return a store that only the ranks of this start share, once all have registered there.

    stopped: polled. Raises `RankError` that names the missing ranks, `StoppedError`.
    """
    wait = _Wait(timeout_s, stopped)
    if env.store_path is None:
        return _rendezvous(_torchrun_store(env, wait), env, wait)
    file = dist.FileStore(env.store_path, env.size)  # which no other process can reach
    file.set_timeout(timedelta(seconds=timeout_s))
    return _rendezvous(file, env, wait)


def _torchrun_store(env: RankEnv, wait: _Wait) -> dist.Store:
    """Return torchrun's store, or one that rank 0 serves on the interface of MASTER_ADDR alone.

    torch's client hears no signal while it waits for a server, so that it is created once there is one.
    """
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=wait.timeout_s)
    if env.rank == 0:
        if rendezvous_is_dynamic(env.launcher_pid):
            print(_UNPICKLES, file=sys.stderr)
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return _serve_store(env, host, port, patience)
    wait.until(lambda: _is_served(host, port))
    return dist.TCPStore(host, port, None, False, patience, wait_for_workers=False)


def _serve_store(env: RankEnv, host: str, port: int, patience: timedelta) -> dist.Store:
    """Serve a store at `host`, on every interface if other hosts cannot reach that."""
    problem = "names no interface of this host"
    spans_hosts = env.size > env.local_size
    if spans_hosts and (address := socket.gethostbyname(host)).startswith("127."):  # as Debian's own host name is
        problem = f"is {address} here, which other hosts cannot reach"
    else:
        try:
            return serve_store(host, port, patience)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
    print(f"warning: MASTER_ADDR={host} {problem}; rank 0 listens on all interfaces", file=sys.stderr)
    return dist.TCPStore(host, port, None, True, patience, wait_for_workers=False)


def _is_served(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:  # refused, unreachable, or the name is not known yet
        return False
    return True


def _rendezvous(base: dist.Store, env: RankEnv, wait: _Wait) -> dist.Store:
    """Return a store that only the ranks of this start share; each registers its process there."""
    word = uuid.uuid4().hex
    welcome = f"paragan/welcome/{word}"

    # The hello of an ended process may lie under this key: its word differs, so rank 0 answers both, and only the
    # living one reads its answer. Nothing is read before the welcome, whose name no earlier start knows.
    # All waits poll `check`: in a `get` torch's client would wait without hearing a signal.
    base.set(f"paragan/hello/{env.rank}", word)
    if env.rank == 0:
        base.set(welcome, word)  # rank 0's word is the name of the round
    wait.until(lambda: base.check([welcome]))
    store = dist.PrefixStore(f"paragan/{base.get(welcome).decode()}", base)
    store.set(process_key(env.rank), json.dumps([socket.gethostname(), os.getpid()]))
    greeted: set[bytes] = set()  # by word, not by rank: the word under a rank's key may be replaced by a newer one

    def are_all_registered() -> bool:
        if env.rank == 0:  # at every look: other ranks may say hello at any time
            _answer_hellos(base, env.size, word, greeted)
        return store.check([process_key(rank) for rank in range(env.size)])

    wait.until(are_all_registered, lambda: [rank for rank in range(env.size) if not store.check([process_key(rank)])])
    return store


def _answer_hellos(base: dist.Store, size: int, round_name: str, greeted: set[bytes]) -> None:
    """Answer every announced word that has not been answered yet."""
    for rank in range(1, size):
        key = f"paragan/hello/{rank}"
        if base.check([key]) and (word := base.get(key)) not in greeted:
            base.set(f"paragan/welcome/{word.decode()}", round_name)
            greeted.add(word)
