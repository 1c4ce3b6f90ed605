"""Failures of ranks: which rank failed first, and why.

The first rank to fail writes its reason into the store before it exits. The others find their
collectives broken and exit with that reason: the user reads one reason, not one for each rank.
"""

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import torch.distributed as dist
from pydantic import Field, TypeAdapter

from paragan.core.dist import World
from paragan.core.errors import PeerFailedError, RankError, outcome
from paragan.core.local_processes import is_running
from paragan.distributed.launch.rank_env import RESUME_HINT, process_key

LOOK_S = 3.0  # wait for the reason of another rank
_MAX_S = 15.0  # a few requests to the store
_PAUSE_S = 0.05
_GRACE_S = 0.5  # a rank may have published its reason just before it ended
_STORE_ENDED = "the process that served the store of the ranks has ended"
_SILENT = "another rank failed or did not answer in time"
# in texts of `RuntimeError`: of gloo, NCCL and their sockets; of time-outs of gloo, and of a store in a file
_BROKEN_LINKS = ("gloo", "NCCL", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
_TIME_OUTS = ("Timed out waiting", "Timeout waiting for key")


@dataclass(frozen=True)
class Failure:
    """The reason that the first rank to fail has published, and its exit code."""

    rank: int
    code: Annotated[int, Field(ge=0, le=255)]
    reason: str


# Under torchrun others on the network can write into the store: what is read from it is validated (`ValueError`).
_FAILURE = TypeAdapter(Failure)
_PROCESS = TypeAdapter(tuple[str, Annotated[int, Field(gt=0, lt=1 << 31)]])


def resolve_failure(world: World, error: BaseException) -> BaseException:
    """Return the error that this rank ends with, within `_MAX_S`: its own, or a `PeerFailedError` of another rank.

    Its own is published to the others. A collective that broke becomes a `RankError` that names the failed rank.
    """
    if world.size == 1 or world.store is None or isinstance(error, PeerFailedError):
        return error
    resolved = [_stopped_rank_error(world, _SILENT) if is_collective_failure(error) else error]

    def look() -> None:
        with suppress(ValueError):  # a value that no rank has written
            resolved.append(_resolve(world, world.store, error))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(_MAX_S)  # a suspended store never answers, despite its time-out
    return resolved[-1]


def _stopped_rank_error(world: World, reason: str) -> RankError:
    return RankError(f"{reason} (rank {world.rank} could not continue); {RESUME_HINT}")


def _resolve(world: World, store: Any, error: BaseException) -> BaseException:
    """Publish the error, and return it, or what follows from a reason that was published before.

    A broken collective is not the cause: first the rank that caused it has a moment to publish its own reason.
    """
    try:
        store.set_timeout(timedelta(seconds=LOOK_S))
        if is_collective_failure(error):
            error = _wait_for_cause(world, store, error)
        first = publish_failure(store, world, error)
        return error if first.rank == world.rank else followed_error(world, first)
    except (RuntimeError, OSError):  # that the store has ended is the cause, whatever the error of this rank names
        return RankError(f"{_STORE_ENDED}; {RESUME_HINT}") if is_collective_failure(error) else error


def is_collective_failure(error: BaseException) -> bool:
    """Return whether a collective failed, directly or as the cause. gloo raises `RuntimeError`."""
    if isinstance(error, dist.DistError):
        return True
    if isinstance(error, RuntimeError) and any(text in str(error) for text in _BROKEN_LINKS + _TIME_OUTS):
        return True
    return error.__cause__ is not None and is_collective_failure(error.__cause__)


def publish_failure(store: dist.Store, world: World, error: BaseException) -> Failure:
    """Write this rank's reason unless another is published; return the published one."""
    code, line = outcome(error)  # no line: a bug
    failure = Failure(world.rank, code, line or f"{type(error).__name__}: {error}"[:500])
    # sets a missing key; returns what is set
    return _FAILURE.validate_json(store.compare_set("failed", "", _FAILURE.dump_json(failure).decode()), strict=True)


def read_failure(store: dist.Store) -> Failure | None:
    """Return the published failure, if there is one."""
    return _FAILURE.validate_json(store.get("failed"), strict=True) if store.check(["failed"]) else None


def read_process(store: dist.Store, rank: int) -> tuple[str, int]:
    """Return host and process id of a rank, which each sets before the first collective."""
    return _PROCESS.validate_json(store.get(process_key(rank)), strict=True)


def _wait_for_cause(world: World, store: dist.Store, error: BaseException) -> BaseException:
    """Wait for a published reason; return the error of this rank, which names ended ranks if there is no reason."""
    began = time.monotonic()
    while True:
        if read_failure(store) is not None:
            return error
        waited = time.monotonic() - began
        ended = _ended_ranks(store, world)
        if waited > LOOK_S or (ended and waited > _GRACE_S):
            break
        time.sleep(_PAUSE_S)
    if ended:
        return _stopped_rank_error(world, f"rank {', '.join(map(str, ended))} failed")
    # the text of a `RankError` stays: it may name the layer whose rows did not arrive
    return error if isinstance(error, RankError) else _stopped_rank_error(world, _SILENT)


def _ended_ranks(store: dist.Store, world: World) -> list[int]:
    processes = [read_process(store, rank) for rank in range(world.size)]
    here = socket.gethostname()
    return [rank for rank, (host, pid) in enumerate(processes) if host == here and not is_running(pid)]


def followed_error(world: World, first: Failure) -> PeerFailedError:
    """Return the error of this rank that follows from the published failure of another."""
    text = f"rank {world.rank} stopped because rank {first.rank} failed: {first.reason}"
    return PeerFailedError(text, first.code, first.rank, first.reason)
