"""Exit statuses of ranks, as files: `ranks/rank-N.exit.json`.

The launcher reads them, and so do the ranks of a later attempt. Rank 0 also writes the run's
`exit.json`; the launcher does if rank 0 could not.
"""

import json
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from paragan.core.errors import PREEMPTED, ParaganError, PeerFailedError, StoppedError
from paragan.core.files import check_no_link, create_subfolder, read_bytes, write_text
from paragan.core.printable import to_printable
from paragan.distributed.launch.rank_env import RankEnv

_MAX_BYTES = 1 << 20
_FINAL = (ParaganError.exit_code, PREEMPTED)  # another attempt would end in the same way


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """Exit status of one rank.

    time: POSIX seconds. cause_rank: the rank whose failure ended this one; None if it ended by
    itself. is_final: another attempt on as many ranks would end in the same way. size: number of ranks.
    """

    rank: int
    code: int
    reason: str
    time: float
    attempt: int = 0
    run_id: str = "none"
    cause_rank: int | None = None
    is_final: bool = False
    size: int = 0


_EXIT_STATUS = TypeAdapter(ExitStatus)


def ranks_folder(folder: Path) -> Path:
    """Return the folder for files of ranks. Raises `CheckpointError` if it is a link."""
    check_no_link(folder / "ranks")
    return folder / "ranks"


def write_rank_exit(folder: Path, place: RankEnv, error: BaseException | None, code: int, reason: str) -> None:
    """Write the exit status of this rank. error: the exception that ended it, if any."""
    cause = error.rank if isinstance(error, PeerFailedError) else None
    is_bug = code == 1 and error is not None and not _is_transient(error)
    end = ExitStatus(
        rank=place.rank,
        code=code,
        reason=to_printable(reason),
        time=time.time(),
        attempt=place.attempt,
        run_id=place.run_id,
        cause_rank=cause,
        # torchrun also stops ranks that wait for one that was killed, and then starts all again
        is_final=is_bug or (code in _FINAL and not isinstance(error, StoppedError)),
        size=place.size,
    )
    path = _path(folder, place.rank)
    create_subfolder(path.parent.parent, path.parent.name)
    write_text(path, json.dumps(asdict(end)) + "\n")


def _is_transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed: a disk, network or device failed."""
    # imports torch, which the launcher does not
    from paragan.distributed.launch.failure import is_collective_failure

    if isinstance(error, BrokenPipeError):
        return False  # the reader of standard output has exited, as `| head` does
    if isinstance(error, OSError | PeerFailedError) or type(error).__name__ == "AcceleratorError":
        return True
    return is_collective_failure(error)


def remove_stale(folder: Path, place: RankEnv) -> None:
    """Remove the file of an earlier run, on the first attempt; torchrun may call both `none`."""
    if place.attempt == 0:
        _path(folder, place.rank).unlink(missing_ok=True)


def record_owner(folder: Path, place: RankEnv) -> None:
    """Record that the run in `folder` belongs to this torchrun."""
    path = ranks_folder(folder) / "run.json"
    create_subfolder(path.parent.parent, path.parent.name)
    write_text(path, json.dumps({"run": place.run_id, "agent": _agent(place)}) + "\n")


def is_owned(folder: Path, place: RankEnv) -> bool:
    """Return whether an earlier attempt of this run owns the folder.

    Run ids repeat (torchrun uses `none` as a default), so the torchrun process identifies a run; a
    restart is never the first attempt.
    """
    try:
        owner = json.loads(read_bytes(ranks_folder(folder) / "run.json", _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    same = isinstance(owner, dict) and owner.get("run") == place.run_id
    return same and (place.attempt > 0 or owner.get("agent") == _agent(place))


def _agent(place: RankEnv) -> str:
    return f"{socket.gethostname()}:{place.launcher_pid}"


def read_all(folder: Path, run: str) -> list[ExitStatus]:
    """Return the newest exit status of each rank of a run, sorted by rank."""
    ends = [_read(path) for path in ranks_folder(folder).glob("rank-*.exit.json")]
    return sorted((end for end in ends if end is not None and end.run_id == run), key=lambda end: end.rank)


def first_failure(ends: Iterable[ExitStatus]) -> ExitStatus | None:
    """Return the root failure of the newest attempt: the earliest that no other rank caused."""
    failed = [end for end in ends if end.code != 0]
    newest = max((end.attempt for end in failed), default=0)
    last = [end for end in failed if end.attempt == newest]
    return min(last, key=lambda end: (end.cause_rank is not None, end.time), default=None)


def final_failure(folder: Path, place: RankEnv) -> ExitStatus | None:
    """Return the final failure of an earlier attempt of this run; None if a retry may succeed.

    An elastic torchrun also stops ranks in order to start again with more or fewer of them.
    """
    ends = read_all(folder, place.run_id)
    newest = max(ends, key=lambda end: end.time, default=None)
    if place.attempt == 0 or newest is None or newest.size != place.size:
        return None
    return first_failure(end for end in ends if end.rank < place.size and end.is_final)


def write_run_exit(folder: Path, code: int, reason: str) -> None:
    """Write `exit.json` if a run began and has none; rank 0 removes it at the start."""
    if not (folder / "config.yaml").exists() or (folder / "exit.json").exists():
        return
    saved = max((p.name for p in (folder / "checkpoints").glob("step-*")), default="step-0")
    step = int("".join(c for c in saved if c.isdecimal()) or 0)
    with suppress(OSError):
        text = json.dumps({"code": code, "step": step, "reason": reason}, indent=1)
        write_text(folder / "exit.json", text + "\n")


def _path(folder: Path, rank: int) -> Path:
    return ranks_folder(folder) / f"rank-{rank}.exit.json"


def _read(path: Path) -> ExitStatus | None:
    try:
        return _EXIT_STATUS.validate_json(read_bytes(path, _MAX_BYTES), strict=True)
    except (OSError, ValueError):
        return None  # another file, or another format
