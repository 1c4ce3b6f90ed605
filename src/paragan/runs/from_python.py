"""A complete run inside a Python program: signals, ranks, the run folder."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack

from paragan.config import RunConfig
from paragan.core.dist import World
from paragan.core.errors import PREEMPTED
from paragan.core.interrupt import Interrupt, install
from paragan.distributed.launch.join import destroy_groups
from paragan.distributed.launch.rank_env import RankEnv
from paragan.runs.run_lines import end_line
from paragan.runs.run_request import RunRequest
from paragan.runs.session import (
    end_session,
    join_world,
    open_session,
    printer,
    record_failure,
    share_failures,
)
from paragan.writers.console import score_line


def run_to_end(config: RunConfig, place: RankEnv | None, prepare: Callable[[World], RunRequest]) -> None:
    """Train to the end, or to a signal that saves. `SystemExit` for signals other than Ctrl-C.

    prepare: called once all ranks are connected.
    """
    with _signals() as interrupt:
        world = join_world(config, place, lambda: interrupt.requested)
        try:
            with share_failures(world):
                request = prepare(world)
            finished = _run(request, world, interrupt)
        finally:
            destroy_groups(world)
    if not finished and interrupt.signal_number not in (None, signal.SIGINT):
        raise SystemExit(PREEMPTED)


def _run(request: RunRequest, world: World, interrupt: Interrupt) -> bool:
    """Train; return whether the run is finished."""
    with ExitStack() as stack:
        with share_failures(world):
            opened = open_session(request, world, lambda: world.any(interrupt.requested))
            session = stack.enter_context(opened)
        if session.is_complete:
            return True
        trainer = session.trainer
        with record_failure(session):
            for event in trainer.run():
                session.write(event)
        code, reason = (0, "finished") if trainer.is_finished else (PREEMPTED, "stopped by a signal; saved")
        end_session(session, code, reason)
        say = printer(world)
        say(end_line(session, reason))
        if session.last_score:
            say(f"score     {score_line(session.last_score)}")
        say(f"where     {session.folder}: report.html, samples/, metrics.jsonl, checkpoints/")
        return trainer.is_finished


def _signals() -> Interrupt:
    """Install signal handlers in the main thread; other threads do not receive signals.

    A second Ctrl-C raises `KeyboardInterrupt`: the program, or the kernel of a notebook, continues.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return install(abort=signal.default_int_handler) if is_main else Interrupt()
