"""How each rank of a run ended: `ranks/rank-N.exit.json`. Read by the launcher, and by the ranks of a later attempt.

Rank 0 also writes the run's `exit.json`; the launcher does where rank 0 could not.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from paragan.core.errors import PREEMPTED, ParaganError, PeerFailedError
from paragan.core.files import read_bytes, refuse_link, write_text
from paragan.core.printable import to_printable
from paragan.distributed.launch.rank_env import RankEnv

_MOST_BYTES = 1 << 20
_FINAL = (ParaganError.exit_code, PREEMPTED)  # another attempt would come to the same


@dataclass(frozen=True)
class ExitStatus:
    """How one rank ended.

    time: POSIX seconds. cause_rank: the rank whose failure ended this one, too; None where it ended
    by itself.

    is_final: another attempt would fail in the same way.
    """

    rank: int
    code: int
    reason: str
    time: float
    attempt: int = 0
    run_id: str = "none"
    cause_rank: int | None = None
    is_final: bool = False


def ranks_folder(folder: Path) -> Path:
    """Where the ranks of the run in `folder` leave their files. `CheckpointError` where it is a link."""
    refuse_link(folder / "ranks")
    return folder / "ranks"


def write(folder: Path, place: RankEnv, error: BaseException | None, code: int, reason: str) -> None:
    """Of this rank, now. error: what ended it, if anything did."""
    cause = error.rank if isinstance(error, PeerFailedError) else None
    bug = code == 1 and error is not None and not _is_transient(error)
    end = ExitStatus(
        place.rank, code, to_printable(reason), time.time(), place.attempt, place.run_id, cause, bug or code in _FINAL
    )
    path = _path(folder, place.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(asdict(end)) + "\n")


def _is_transient(error: BaseException) -> bool:
    """Whether another attempt may fare better: a disk, a network or a device failed, not this program."""
    from paragan.distributed.launch.failure import (
        is_collective_failure,  # brings torch, which a rank has and the one who starts it has not
    )

    of_device = type(error).__name__ == "AcceleratorError"
    if isinstance(error, BrokenPipeError):
        return False  # the reader of standard output has left, as `| head` does
    return isinstance(error, (OSError, PeerFailedError)) or of_device or is_collective_failure(error)


def remove_stale(folder: Path, place: RankEnv) -> None:
    """A first attempt has no past: what lies here is of another run, even where torchrun calls both `none`."""
    if place.attempt == 0:
        _path(folder, place.rank).unlink(missing_ok=True)


def record_owner(folder: Path, place: RankEnv) -> None:
    """The run in `folder` is from now on the one that torchrun started."""
    path = ranks_folder(folder) / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"run": place.run_id, "agent": _agent(place)}) + "\n")


def is_owned(folder: Path, place: RankEnv) -> bool:
    """Whether an earlier attempt of this very run has. Users give the same id again, and torchrun calls some `none`:
    one torchrun process is one run, and a restart is never the first attempt.
    """
    try:
        owner = json.loads(read_bytes(ranks_folder(folder) / "run.json", _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    same = isinstance(owner, dict) and owner.get("run") == place.run_id
    return same and (place.attempt > 0 or owner.get("agent") == _agent(place))


def _agent(place: RankEnv) -> str:
    return f"{socket.gethostname()}:{place.launcher_pid}"


def read_all(folder: Path, run: str) -> list[ExitStatus]:
    """The ends that ranks of this run have left, by rank, of whatever attempt each saw last."""
    found = [_read(path) for path in sorted(ranks_folder(folder).glob("rank-*.exit.json"))]
    return sorted((end for end in found if end is not None and end.run_id == run), key=lambda end: end.rank)


def first_failure(found: Iterable[ExitStatus]) -> ExitStatus | None:
    """Of the newest attempt, the one that ended by its own failure before any other did."""
    failed = [end for end in found if end.code != 0]
    newest = max((end.attempt for end in failed), default=0)
    return min(
        (end for end in failed if end.attempt == newest), key=lambda e: (e.cause_rank is not None, e.time), default=None
    )


def final_failure(folder: Path, place: RankEnv) -> ExitStatus | None:
    """What ended an earlier attempt of this very run for good; None where it is worth another."""
    if place.attempt == 0:
        return None
    found = [end for end in read_all(folder, place.run_id) if end.rank < place.size and end.is_final]
    return first_failure(found)


def lacks_exit(folder: Path) -> bool:
    """Whether a run has begun there and not reported its end: rank 0 removes `exit.json` when it begins."""
    return (folder / "config.yaml").exists() and not (folder / "exit.json").exists()


def write_exit(folder: Path, code: int, reason: str) -> None:
    """`exit.json`, where `lacks_exit`."""
    if not lacks_exit(folder):
        return
    saved = max((p.name for p in (folder / "checkpoints").glob("step-*")), default="step-0")
    step = int("".join(c for c in saved if c.isdecimal()) or 0)
    with suppress(OSError):
        write_text(folder / "exit.json", json.dumps({"code": code, "step": step, "reason": reason}, indent=1) + "\n")


def _path(folder: Path, rank: int) -> Path:
    return ranks_folder(folder) / f"rank-{rank}.exit.json"


def _read(path: Path) -> ExitStatus | None:
    try:
        end = ExitStatus(**json.loads(read_bytes(path, _MOST_BYTES)))
        numbers = (end.rank, end.code, end.attempt, 0 if end.cause_rank is None else end.cause_rank)
        ok = all(type(n) is int for n in numbers) and isinstance(end.time, float) and isinstance(end.reason, str)
        return end if ok else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # not ours, or of another format
