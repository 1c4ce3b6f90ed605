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
from paragan.core.files import check_no_link, create_subfolder, read_bytes, read_json_file, write_text
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


def write_rank_exit(folder: Path, env: RankEnv, error: BaseException | None, code: int, reason: str) -> None:
    """Write the exit status of this rank. error: the exception that ended it, if any."""
    cause = error.rank if isinstance(error, PeerFailedError) else None
    is_bug = code == 1 and error is not None and not _is_transient(error)
    status = ExitStatus(
        rank=env.rank,
        code=code,
        reason=to_printable(reason),
        time=time.time(),
        attempt=env.attempt,
        run_id=env.run_id,
        cause_rank=cause,
        # torchrun also stops ranks that wait for one that was killed, and then starts all again
        is_final=is_bug or (code in _FINAL and not isinstance(error, StoppedError)),
        size=env.size,
    )
    path = _path(folder, env.rank)
    create_subfolder(path.parent.parent, path.parent.name)
    write_text(path, json.dumps(asdict(status)) + "\n")


def _is_transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed: a disk, network or device failed."""
    # imports torch, which the launcher does not
    from paragan.distributed.launch.failure import is_collective_failure

    if isinstance(error, BrokenPipeError):
        return False  # the reader of standard output has exited, as `| head` does
    if isinstance(error, OSError | PeerFailedError) or type(error).__name__ == "AcceleratorError":
        return True
    return is_collective_failure(error)


def remove_stale(folder: Path, env: RankEnv) -> None:
    """Remove the file of an earlier run, on the first attempt; torchrun may call both `none`."""
    if env.attempt == 0:
        _path(folder, env.rank).unlink(missing_ok=True)


def record_owner(folder: Path, env: RankEnv) -> None:
    """Record that the run in `folder` belongs to this torchrun."""
    path = ranks_folder(folder) / "run.json"
    create_subfolder(path.parent.parent, path.parent.name)
    write_text(path, json.dumps({"run": env.run_id, "agent": _agent(env)}) + "\n")


def is_owned(folder: Path, env: RankEnv) -> bool:
    """Return whether an earlier attempt of this run owns the folder.

    Run ids repeat (torchrun uses `none` as a default), so the torchrun process identifies a run; a
    restart is never the first attempt.
    """
    with suppress(OSError, ValueError):
        owner = read_json_file(ranks_folder(folder) / "run.json", dict, _MAX_BYTES)
        return owner.get("run") == env.run_id and (env.attempt > 0 or owner.get("agent") == _agent(env))
    return False


def _agent(env: RankEnv) -> str:
    return f"{socket.gethostname()}:{env.launcher_pid}"


def read_all(folder: Path, run: str) -> list[ExitStatus]:
    """Return the newest exit status of each rank of a run, sorted by rank."""
    statuses = filter(None, map(_read, ranks_folder(folder).glob("rank-*.exit.json")))
    return sorted((status for status in statuses if status.run_id == run), key=lambda status: status.rank)


def first_failure(statuses: Iterable[ExitStatus]) -> ExitStatus | None:
    """Return the root failure of the newest attempt: the earliest that no other rank caused."""
    failed = [status for status in statuses if status.code != 0]
    last_attempt = max((status.attempt for status in failed), default=0)
    newest = [status for status in failed if status.attempt == last_attempt]
    return min(newest, key=lambda status: (status.cause_rank is not None, status.time), default=None)


def final_failure(folder: Path, env: RankEnv) -> ExitStatus | None:
    """Return the final failure of an earlier attempt of this run; None if a retry may succeed.

    An elastic torchrun also stops ranks in order to start again with more or fewer of them.
    """
    statuses = read_all(folder, env.run_id)
    newest = max(statuses, key=lambda status: status.time, default=None)
    if env.attempt == 0 or newest is None or newest.size != env.size:
        return None
    return first_failure(status for status in statuses if status.rank < env.size and status.is_final)


def write_run_exit(folder: Path, code: int, reason: str) -> None:
    """Write `exit.json` if a run began and has none; rank 0 removes it at the start."""
    if not (folder / "config.yaml").exists() or (folder / "exit.json").exists():
        return
    newest = max((path.name for path in (folder / "checkpoints").glob("step-*")), default="step-0")
    step = int("".join(letter for letter in newest if letter.isdecimal()) or 0)
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
