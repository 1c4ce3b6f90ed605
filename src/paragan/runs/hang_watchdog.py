"""Watchdog of a run: at a hang, the stacks of all ranks, one line, and an end with exit code 75."""

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from paragan.core.errors import PeerFailedError, RankError
from paragan.core.files import create_subfolder, open_to_append
from paragan.core.phases import Phase
from paragan.core.printable import to_printable
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.distributed.launch import exit_status
from paragan.distributed.launch.hang import WAKE_SIGNAL, HangExchange, RankState, describe_hang
from paragan.distributed.launch.rank_env import RESUME_HINT
from paragan.engine.session import Session
from paragan.engine.watchdog import HangLimits, Watchdog
from paragan.runs.run_request import RunRequest

_MAX_BYTES = 1 << 20  # of the stacks of a rank, over all hangs
_TIMEOUT_SHARE = 0.9  # of the ranks' time-out, which names no rank
_DEBUGGERS = ("bdb", "pdb")


@contextmanager
def hang_watchdog(session: Session, request: RunRequest) -> Iterator[None]:
    """Watch the training inside, in the thread that enters the block.

    SIGUSR2 writes the stacks of this process, unless the program handles it. Grids on workers have
    heartbeats instead of a watchdog.
    """
    if request.config.train.watchdog_s is None or request.config.workers is not None:
        yield
        return
    path = create_subfolder(request.out, "stacks") / f"rank-{session.world.rank}.txt"
    if path.exists() and path.stat().st_size > _MAX_BYTES:
        path.unlink()
    with open_to_append(path) as stacks:
        is_free = signal.getsignal(WAKE_SIGNAL) == signal.SIG_DFL  # a handler of the program stays
        if is_free:
            faulthandler.register(WAKE_SIGNAL, file=stacks, all_threads=True)
        try:
            with _RunWatch(session, request, stacks).watchdog:
                yield
        finally:
            if is_free:
                faulthandler.unregister(WAKE_SIGNAL)
            _remove_empty(path)


def _limits(session: Session, request: RunRequest) -> HangLimits:
    """Return the limits of this rank; a process alone has no largest one, since none waits for it."""
    floor_s = request.config.train.watchdog_s
    assert floor_s is not None
    max_s = _TIMEOUT_SHARE * request.config.train.timeout_s
    if request.config.train.executor != "eager":  # later programs take as long as the first
        floor_s = max(floor_s, max_s)
    if session.world.size == 1:
        return HangLimits(floor_s)
    return HangLimits(floor_s, max_s)


def waits_for_score(roles: Roles, state: RankState) -> bool:
    """Return whether a rank waits for those that have G."""
    return state.phase == Phase.EVALUATION and Side.G not in roles.sides


class _RunWatch:
    """Reactions of a rank to a hang, in the thread of its watchdog."""

    def __init__(self, session: Session, request: RunRequest, stacks: BinaryIO) -> None:
        self._session = session
        self._world = session.world
        self._request = request
        self._stacks = stacks
        self._training_thread = threading.get_ident()
        self._exchange = HangExchange(self._world) if self._world.size > 1 else None
        look = (lambda: None) if self._exchange is None else self._answer
        self.watchdog = Watchdog(session.trainer.phases, _limits(session, request), self._stalled, look)

    def _stalled(self, limit_s: float) -> bool:
        """End the run: this rank makes no progress, possibly because it waits for another.

        Returns True if it waits for a score, and all ranks answer: the one that scores watches its progress.
        """
        if self._is_debugged():
            return False
        state = self._state()
        is_waiting = waits_for_score(self._session.trainer.roles, state)
        if is_waiting and self._exchange is not None and self._exchange.all_answer(limit_s):
            return True
        # the stacks first: the exchange waits for ranks that may never answer
        self._write_stacks(state)
        if self._exchange is None:
            self._end(RankError(self._line(describe_hang({0: state}, limit_s))))
        self._exchange.answer(state, requests=True)
        self._end(self._exchange.publish(self._line(describe_hang(self._exchange.collect(), limit_s))))

    def _answer(self) -> None:
        """Answer the request of another rank, and end with its reason."""
        assert self._exchange is not None
        self._exchange.answer_ping()  # shows that this process runs, even where its training waits
        if self._exchange.is_requested():
            state = self._state()
            self._write_stacks(state)
            self._exchange.answer(state)
            self._end(self._exchange.wait_for_reason())

    def _state(self) -> RankState:
        progress = self.watchdog.progress()
        trainer = self._session.trainer
        return RankState(
            rank=self._world.rank,
            step=trainer.clock.step,
            phase=progress.phase,
            seconds=round(progress.seconds, 1),
            suspended_s=round(progress.suspended_s, 1),
            work=trainer.phases.work,
        )

    def _line(self, problem: str) -> str:
        return f"{problem}; stacks of all ranks are in {self._request.out / 'stacks'}; {RESUME_HINT}"

    def _write_stacks(self, state: RankState) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        attempt = 0 if self._request.place is None else self._request.place.attempt
        head = f"rank {state.rank}, attempt {attempt}, {when}: {state.seconds} s in the phase {state.phase}, "
        with suppress(OSError):  # a full disk
            self._stacks.write(f"{head}after step {state.step}\n".encode())
            faulthandler.dump_traceback(self._stacks, all_threads=True)

    def _is_debugged(self) -> bool:
        """Return whether the training thread is in a debugger, which waits for a person."""
        frame = sys._current_frames().get(self._training_thread)
        while frame is not None:
            if frame.f_globals.get("__name__") in _DEBUGGERS:
                return True
            frame = frame.f_back
        return False

    def _end(self, error: RankError | PeerFailedError) -> NoReturn:
        """End this process; its training thread cannot."""
        text = to_printable(str(error))
        with suppress(OSError):
            if self._request.place is not None:
                exit_status.write_rank_exit(self._request.out, self._request.place, error, error.exit_code, text)
            if self._world.is_main:
                reason = error.reason if isinstance(error, PeerFailedError) else text
                exit_status.write_run_exit(self._request.out, error.exit_code, to_printable(reason))
            if not isinstance(error, PeerFailedError):
                print(text, file=sys.stderr, flush=True)
        # Not an exception: the training thread hangs in a call that none would leave.
        os._exit(error.exit_code)


def _remove_empty(path: Path) -> None:
    with suppress(OSError):
        if not path.stat().st_size:
            path.unlink()
            path.parent.rmdir()  # of the last rank
