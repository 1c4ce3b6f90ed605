"""Training of one run in its folder, in this process. Repeating the command resumes the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from paragan.config import RunConfig
from paragan.core.dist import World
from paragan.core.errors import PREEMPTED, PeerFailedError, outcome
from paragan.core.interrupt import Interrupt
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.failure import resolve_failure
from paragan.distributed.launch.join import destroy_groups
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.run_lines import end_line, summary
from paragan.runs.run_request import RunRequest
from paragan.runs.session import end_session, join_world, open_session, printer, record_failure


def train_run(
    config: RunConfig,
    recipe: str,
    out: Path,
    fresh: bool,
    interrupt: Interrupt,
    place: RankEnv | None = None,
    company: ExternalWorkers | None = None,
) -> int:
    """Train `config` in the folder `out`, from its newest checkpoint or from the start; returns the exit code.

    place: of this process among several. A rank that failed because of another rank prints nothing. company: processes
    that wait to be the workers of a grid.
    """
    request = RunRequest(config, recipe, out, fresh, place, has_commands=True, company=company)

    def stop_reason() -> str:
        """Why this process must stop; empty where it need not."""
        if interrupt.requested:
            return "stopped by a signal"
        orphaned = place is not None and place.is_orphaned()
        return "the launcher has exited" if orphaned else ""

    ended = _Ended()
    with (
        _joined(request, interrupt, ended) as world,
        open_session(request, world, lambda: world.any(bool(stop_reason()))) as session,
    ):
        trainer = session.trainer
        if not session.is_complete:
            with record_failure(session):
                for event in trainer.run():
                    session.write(event)
            if not trainer.is_complete:
                ended.code = PREEMPTED
                ended.reason = f"{stop_reason() or 'another rank was stopped'}; saved"
            end_session(session, ended.code, ended.reason)
            printer(world)(end_line(session, ended.reason))
            if trainer.is_complete:
                printer(world)(summary(session))
    return ended.code


@dataclass
class _Ended:
    """How the training of a rank ended."""

    code: int = 0
    reason: str = "finished"


@contextmanager
def _joined(request: RunRequest, interrupt: Interrupt, ended: _Ended) -> Iterator[World]:
    """The world of this process; one of several ranks reports how it ended to the launcher."""
    if request.place is None:
        world = join_world(request.config, None)
        try:
            yield world
        finally:
            destroy_groups(world)
    else:
        with _reported(request, request.place, ended) as worlds:
            worlds.append(join_world(request.config, request.place, lambda: interrupt.requested))
            yield worlds[0]
            destroy_groups(worlds[0])


@contextmanager
def _reported(request: RunRequest, place: RankEnv, ended: _Ended) -> Iterator[list[World]]:
    """Write the exit status of a rank. Yields an empty list, for the world that it joins."""
    worlds: list[World] = []
    error: BaseException | None = None
    try:
        exit_status.remove_stale(request.out, place)
        yield worlds
    except BaseException as raised:
        error = resolve_failure(worlds[0] if worlds else World(), raised)
        ended.code, line = outcome(error)
        ended.reason = line or f"{type(error).__name__}: {error}"[:500]
        if not isinstance(error, PeerFailedError):
            raise error from (None if error is raised else raised)
    finally:
        with suppress(OSError):  # a full disk must not hide the error
            exit_status.write(request.out, place, error, ended.code, ended.reason)
