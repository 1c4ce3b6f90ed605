"""Hang of a run: a rank requests the state of all ranks, and names the one that stalls.

Watchdogs exchange messages through the store of the ranks, whose calls may never return while the
process that serves it is suspended: each call is made in a thread, and abandoned after a time.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from paragan.core.dist import World
from paragan.core.errors import PeerFailedError, RankError
from paragan.core.local_processes import catches_signal, is_suspended
from paragan.core.phases import Phase
from paragan.distributed.launch.failure import followed_error, publish_failure, read_failure, read_process
from paragan.distributed.launch.rank_env import RESUME_HINT

WAKE_SIGNAL = signal.SIGUSR2  # writes the stacks of a process
_CALL_S = 3.0
_ANSWER_S = 3.0  # until silent ranks of this host are woken, and again until their answers
_REASON_S = 15.0
_PAUSE_S = 0.05
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RankState:
    """Answer of a rank: its step and phase, seconds in it, those of a suspension, and the cell of a grid."""

    rank: int
    step: int
    phase: str
    seconds: float
    suspended_s: float = 0.0
    work: str = ""


_STATE = TypeAdapter(RankState)


class HangExchange:
    """Requests and answers of the watchdogs of all ranks of `world`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pending: threading.Thread | None = None
        self._pings = 0  # number of the next one: every watchdog answers every ping, so all count the same

    def is_requested(self) -> bool:
        """Return whether another rank has requested the states."""
        return bool(self._call(lambda store: store.check(["hang"])))

    def answer(self, state: RankState, requests: bool = False) -> None:
        """Publish the state of this rank. requests: also request those of the others."""
        key = f"hang/{self._world.rank}"
        self._call(lambda store: store.set(key, _STATE.dump_json(state).decode()))
        if requests:
            self._call(lambda store: store.set("hang", str(self._world.rank)))

    def answer_ping(self) -> None:
        """Answer a rank that pings all others, if there is one."""
        if self._call(lambda store: store.check([f"ping/{self._pings}"])):
            self._call(lambda store: store.set(f"ping/{self._pings}/{self._world.rank}", ""))
            self._pings += 1

    def all_answer(self, timeout_s: float) -> bool:
        """Ping all ranks; return whether their watchdogs answer: none is suspended."""
        name = f"ping/{self._pings}"
        self._call(lambda store: store.set(name, ""))
        self.answer_ping()
        return self._wait_for([f"{name}/{rank}" for rank in range(self._world.size)], timeout_s)

    def collect(self) -> dict[int, RankState | None]:
        """Return the states of all ranks; None: no answer. Ranks of this host are woken for it.

        A rank that does not answer is suspended, or holds the interpreter's lock.
        """
        states = self._read_states()
        for rank in [rank for rank, state in states.items() if state is None]:
            self._wake(rank)
        return self._read_states() if None in states.values() else states

    def publish(self, line: str) -> RankError | PeerFailedError:
        """Publish the reason of the end, unless another is published; return the error of this rank."""
        error = RankError(line)
        first = self._call(lambda store: publish_failure(store, self._world, error))
        return error if first is None or first.rank == self._world.rank else followed_error(self._world, first)

    def wait_for_reason(self) -> RankError | PeerFailedError:
        """Return the error that follows from the published reason, which comes within some seconds."""
        self._wait_for(["failed"], _REASON_S)
        if first := self._call(read_failure):
            return followed_error(self._world, first)
        return RankError(f"another rank makes no progress; {RESUME_HINT}")

    def _read_states(self) -> dict[int, RankState | None]:
        keys = [f"hang/{rank}" for rank in range(self._world.size)]
        self._wait_for(keys, _ANSWER_S)
        return {rank: self._read_state(key) for rank, key in enumerate(keys)}

    def _read_state(self, key: str) -> RankState | None:
        return self._call(
            lambda store: _STATE.validate_json(store.get(key), strict=True) if store.check([key]) else None
        )

    def _wait_for(self, keys: list[str], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._call(lambda store: store.check(keys)):
                return True
            time.sleep(_PAUSE_S)
        return False

    def _wake(self, rank: int) -> None:
        """Let a rank of this host write its stacks, also while suspended, and continue."""
        host, pid = self._call(lambda store: read_process(store, rank)) or ("", 0)
        if host == socket.gethostname() and _is_sibling(pid):
            with suppress(OSError):
                if catches_signal(pid, WAKE_SIGNAL):
                    os.kill(pid, WAKE_SIGNAL)
                if is_suspended(pid):
                    os.kill(pid, signal.SIGCONT)

    def _call(self, act: Callable[[Any], T]) -> T | None:
        """Call `act` with the store; None if it fails, or takes longer than `_CALL_S`."""
        # While an abandoned call hangs no other is made: the store is locked by it, and threads would pile up.
        if self._pending is not None and self._pending.is_alive():
            return None
        results: list[T] = []

        def call() -> None:
            with suppress(RuntimeError, OSError, ValueError):  # of the store, and of a value that no rank has written
                results.append(act(self._world.store))

        self._pending = threading.Thread(target=call, daemon=True)
        self._pending.start()
        self._pending.join(_CALL_S)
        return results[0] if results else None


def _is_sibling(pid: int) -> bool:
    """Return whether a process has the parent of this one: a rank, not a later process of its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getppid())
    except (OSError, IndexError):
        return False


def describe_hang(states: Mapping[int, RankState | None], limit_s: float) -> str:
    """Return one line: the rank that stalls, its phase and time.

    A silent rank, or one that was suspended; else the rank that is longest in a phase other than
    communication, in which ranks wait for others.
    """
    silent = [rank for rank, state in states.items() if state is None]
    if silent:
        return f"rank {silent[0]} makes no progress and does not answer (limit {limit_s:.3g} s)"
    known = [state for state in states.values() if state is not None]
    suspended = [state for state in known if state.suspended_s]
    computing = [state for state in known if state.phase != Phase.COMMUNICATION]
    # Ranks that communicate wait for the one that computes: theirs is the longer time, and not the cause.
    stalled = max(suspended or computing or known, key=lambda state: state.seconds)
    who = stalled.work or f"rank {stalled.rank}"
    where = f"in the phase {stalled.phase}" + ("" if stalled.work else f" of step {stalled.step + 1}")
    cause = "; it was suspended" if suspended else ""
    return f"{who} made no progress for {stalled.seconds:.1f} s {where} (limit {limit_s:.3g} s){cause}"
