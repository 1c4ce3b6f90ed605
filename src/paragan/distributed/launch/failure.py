"""Failures of ranks: which rank failed first, and why.

The first rank to fail writes its reason into the store before it exits. The others find their
collectives broken and exit with that reason: the user reads one reason, not one for each rank.
"""

import json
import socket
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

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


def resolve_failure(world: World, error: BaseException) -> BaseException:
    """Return the error that this rank ends with, within `_MAX_S`: its own, or a `PeerFailedError` of another rank.

    Its own is published to the others. A collective that broke becomes a `RankError` that names the failed rank.
    """
    if world.size == 1 or world.store is None or isinstance(error, PeerFailedError):
        return error
    resolved: list[BaseException] = []
    looking = threading.Thread(target=lambda: resolved.append(_resolve(world, world.store, error)), daemon=True)
    looking.start()
    looking.join(_MAX_S)  # a suspended store never answers, despite its time-out
    if resolved:
        return resolved[0]
    return _stopped_rank_error(world, _SILENT) if is_collective_failure(error) else error


def _stopped_rank_error(world: World, reason: str) -> RankError:
    return RankError(f"{reason} (rank {world.rank} could not continue); {RESUME_HINT}")


def _resolve(world: World, store: Any, error: BaseException) -> BaseException:
    try:
        store.set_timeout(timedelta(seconds=LOOK_S))
        if is_collective_failure(error):
            failure = _find_failure(store, world)
            if isinstance(failure, dict):  # this rank's own if it failed twice: an earlier call has published it
                return error if failure["rank"] == world.rank else followed_error(world, failure)
            # without an ended rank the text of a `RankError` stays: it may name the layer whose rows did not arrive
            if failure or not isinstance(error, RankError):
                error = _stopped_rank_error(world, failure or _SILENT)
        published = publish_failure(store, world, error)
        return error if published["rank"] == world.rank else followed_error(world, published)
    except (ValueError, KeyError, TypeError, RecursionError):  # others on the network can write values into the store
        return _stopped_rank_error(world, _SILENT) if is_collective_failure(error) else error
    except (RuntimeError, OSError):  # that the store has ended is the cause, whatever the error of this rank names
        return RankError(f"{_STORE_ENDED}; {RESUME_HINT}") if is_collective_failure(error) else error


def is_collective_failure(error: BaseException) -> bool:
    """Return whether a collective failed, directly or as the cause. gloo raises `RuntimeError`."""
    if isinstance(error, dist.DistError):
        return True
    if isinstance(error, RuntimeError) and any(text in str(error) for text in _BROKEN_LINKS + _TIME_OUTS):
        return True
    return error.__cause__ is not None and is_collective_failure(error.__cause__)


def publish_failure(store: dist.Store, world: World, error: BaseException) -> dict[str, Any]:
    """Write this rank's reason unless another is published; return the published one."""
    code, line = outcome(error)  # no line: a bug
    reason = line or f"{type(error).__name__}: {error}"[:500]
    failure = {"rank": world.rank, "code": code, "reason": reason}
    return json.loads(store.compare_set("failed", "", json.dumps(failure)))  # sets a missing key; returns what is set


def read_failure(store: dist.Store) -> dict[str, Any] | None:
    """Return the published failure, if there is one."""
    return json.loads(store.get("failed")) if store.check(["failed"]) else None


def _find_failure(store: dist.Store, world: World) -> dict[str, Any] | str:
    """Return the published failure, or a text about the ended ranks; empty if neither is known."""
    began = time.monotonic()
    while True:
        if failure := read_failure(store):
            return failure
        waited = time.monotonic() - began
        ended = _ended_ranks(store, world)
        if waited > LOOK_S or (ended and waited > _GRACE_S):
            break
        time.sleep(_PAUSE_S)
    return f"rank {', '.join(map(str, ended))} failed" if ended else ""


def _ended_ranks(store: dist.Store, world: World) -> list[int]:
    ended = []
    for rank in range(world.size):  # `get` waits for no key: each rank sets its own before the first collective
        host, pid = json.loads(store.get(process_key(rank)))
        if host == socket.gethostname() and not is_running(pid):
            ended.append(rank)
    return ended


def followed_error(world: World, first: Mapping[str, Any]) -> PeerFailedError:
    """Return the error of this rank that follows from the published failure of another."""
    rank = int(first["rank"])
    reason = str(first["reason"])
    text = f"rank {world.rank} stopped because rank {rank} failed: {reason}"
    return PeerFailedError(text, int(first["code"]), rank, reason)
