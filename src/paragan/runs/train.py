"""Training of one run in its folder, in this process. Repeating the command resumes the run."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from paragan.config import RunConfig
from paragan.core.dist import World
from paragan.core.errors import PREEMPTED, PeerFailedError, outcome
from paragan.core.interrupt import Interrupt, install
from paragan.core.network_factory import Model
from paragan.core.printable import print_line
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.failure import resolve_failure
from paragan.distributed.launch.join import destroy_groups
from paragan.engine.session import Session
from paragan.runs.hang_watchdog import hang_watchdog
from paragan.runs.run_lines import end_line, result_lines
from paragan.runs.run_request import Runner, RunRequest
from paragan.runs.session import end_session, join_world, open_session, record_failure, share_failures


@dataclass
class _Ended:
    """Result of the training of a rank."""

    code: int = 0
    reason: str = "finished"


def train_run(request: RunRequest, interrupt: Interrupt, runner: Runner | None = None) -> int:
    """Train in the run folder, from its newest checkpoint if any; return the exit code.

    A rank that failed because of another rank prints nothing. runner: that has started this process.
    """
    ended = _Ended()
    with (
        _join(request, interrupt, ended) as world,
        open_session(request, world, lambda: world.any(bool(_stop_reason(request, interrupt))), runner) as session,
    ):
        if not session.is_complete:
            with _training(session, request, interrupt, ended):
                for event in session.trainer.run():
                    session.write(event)
    return ended.code


def train_in_program(request: RunRequest, objects: Callable[[World], tuple[RunConfig, Model | None]]) -> None:
    """Train to the end, or to a signal that saves. `SystemExit` for signals other than Ctrl-C.

    objects: returns the config and the networks from memory, once all ranks are connected. Signals are caught in the
    main thread only. A second Ctrl-C raises `KeyboardInterrupt`: the program, or the kernel of a notebook, continues.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ended = _Ended()
    with install(abort=signal.default_int_handler) if is_main else Interrupt() as interrupt, ExitStack() as stack:
        world = join_world(request.config, request.place, lambda: interrupt.requested)
        stack.callback(destroy_groups, world)
        with share_failures(world):
            config, model = objects(world)
            request = replace(request, config=config, model=model)
            session = stack.enter_context(open_session(request, world, lambda: world.any(interrupt.requested)))
        if not session.is_complete:
            with _training(session, request, interrupt, ended, is_watched=request.place is not None):
                for event in session.trainer.run():
                    session.write(event)
    if ended.code and interrupt.signal_number not in (None, signal.SIGINT):
        raise SystemExit(ended.code)


def _stop_reason(request: RunRequest, interrupt: Interrupt) -> str:
    """Return why this process must stop; empty if it need not."""
    if interrupt.requested:
        return "stopped by a signal"
    orphaned = request.place is not None and request.place.is_orphaned()
    return "the launcher has exited" if orphaned else ""


@contextmanager
def _training(
    session: Session, request: RunRequest, interrupt: Interrupt, ended: _Ended, is_watched: bool = True
) -> Iterator[None]:
    """Record and print whether the training inside has finished, stopped or failed."""
    # the watchdog ends first, so that a slow end of the writers is no hang of the training
    with record_failure(session), hang_watchdog(session, request) if is_watched else nullcontext():
        yield
    if not session.trainer.is_complete:
        ended.code = PREEMPTED
        ended.reason = f"{_stop_reason(request, interrupt) or 'another rank was stopped'}; saved"
    end_session(session, ended.code, ended.reason)
    if session.world.is_main:
        print_line(f"{end_line(session, ended.reason)}\n{result_lines(session)}", link=session.folder / "report.html")


@contextmanager
def _join(request: RunRequest, interrupt: Interrupt, ended: _Ended) -> Iterator[World]:
    """Yield the world of this process. One of several ranks records its exit status."""
    place = request.place
    world = World()
    error: BaseException | None = None
    try:
        if place is not None:
            exit_status.remove_stale(request.out, place)
        world = join_world(request.config, place, lambda: interrupt.requested)
        yield world
    except BaseException as raised:
        error = resolve_failure(world, raised)
        ended.code, line = outcome(error)
        ended.reason = line or f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, PeerFailedError):
            return  # swallowed: the rank that failed first reports it; here the exit code is enough
        if error is raised:
            raise
        raise error from raised
    finally:
        if error is None or place is None:  # threads of a failed rank may wait in a collective; its process ends
            destroy_groups(world)
        if place is not None:
            with suppress(OSError):  # a full disk must not hide the error
                exit_status.write_rank_exit(request.out, place, error, ended.code, ended.reason)
