"""Real processes that run cases together: one pool per number of ranks, started once, restarted after a failure."""

import json
import os
import selectors
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.distributed.nursery import Nursery

START_S = 120.0
GRACE_S = 3.0  # for the others, once one rank has failed
TAIL = 6000  # characters of a rank's output in a message


class Member:
    """One process, its answers, and what it printed during the present case."""

    def __init__(self, nursery: Nursery, rank: int, world: int, folder: Path) -> None:
        self.nursery, self.rank, self.log = nursery, rank, folder / f"rank-{rank}.log"
        self.answers, theirs = os.pipe()
        its_orders, self.orders = os.pipe()
        os.set_blocking(self.answers, False)
        with self.log.open("wb") as log:
            self.pid = nursery.bear([rank, world, str(folder)], its_orders, log.fileno(), theirs)
        os.close(theirs)
        os.close(its_orders)
        self._code: int | None = None
        self.expect()

    def expect(self) -> None:
        """Forget the last answer and what was printed so far."""
        self.heard, self.answer, self.gone, self.start = b"", None, False, self.log.stat().st_size

    def order(self, line: str) -> None:
        with suppress(BrokenPipeError):  # its end is seen when its answer is awaited
            os.write(self.orders, line.encode() + b"\n")

    def rest(self, stop: bool) -> None:
        """Groups that cases have made leave threads of gloo's, which look around for ever."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGSTOP if stop else signal.SIGCONT)

    def hear(self) -> None:
        """Take in what has come: a part of the answer, its end, or the end of the process."""
        data = os.read(self.answers, 1 << 16)
        self.heard += data
        self.gone = not data
        if self.heard.endswith(b"\n"):
            self.answer = json.loads(self.heard)

    @property
    def printed(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self.start)
            return log.read().decode(errors="replace")[-TAIL:]

    def code(self) -> int:
        """Its exit code, once it has ended; waits for that."""
        if self._code is None:
            self._code = self.nursery.wait(self.pid)
        return self._code

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.code()
        os.close(self.orders)
        os.close(self.answers)


class Pool:
    """`world` processes in one gloo group. Lazy: they start with the first case, and anew after a case that failed.

    A case is a function `(world: paragan.core.dist.World, **arguments)` that returns something JSON can hold. `starts`
    counts how often the processes were started. nursery: shared by pools; None: one of its own.
    """

    def __init__(self, world: int, nursery: Nursery | None = None) -> None:
        self.world, self.starts = world, 0
        self._nursery, self._shares = nursery or Nursery(), nursery is not None
        self._may_rest = False  # whether those who rest would end with this process
        self._members: list[Member] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(self, case: str, /, *, timeout: float = 120.0, **arguments: Any) -> list[Any]:
        """What `module:function` returned, by rank. AssertionError: a rank raised, died, or took over `timeout` s."""
        order = json.dumps({"case": case, "arguments": arguments, "timeout": timeout})
        try:
            if not self._members:
                self._start()
            for member in self._members:
                member.rest(False)
                member.expect()
                member.order(order)
            found = self._await(case, timeout)
            for member in self._members:
                member.rest(self._may_rest)
            return found
        except BaseException:  # also the test's own time-out: no late answer may be taken for the next case's
            self.close()
            raise

    def close(self) -> None:
        """End the processes; a later case starts new ones."""
        members, self._members = self._members, []
        for member in members:
            member.end()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        if not self._shares:
            self._nursery.close()

    def _start(self) -> None:
        self.starts += 1
        self._folder = tempfile.TemporaryDirectory(prefix="paragan-ranks-")
        for rank in range(self.world):
            self._members.append(Member(self._nursery, rank, self.world, Path(self._folder.name)))
        self._may_rest = all(self._await("joining the group", START_S))

    def _await(self, case: str, timeout: float) -> list[Any]:
        failed = self._hear_all(timeout)
        silent = [m for m in self._members if m.answer is None and not m.gone]
        if failed is None and not silent:
            return [m.answer["value"] for m in self._members]
        for member in silent:
            os.kill(member.pid, signal.SIGUSR1)
        time.sleep(0.5 if silent else 0)  # for the stacks to be written
        dead = next((m for m in self._members if m.gone), None)  # the others' errors follow from it
        raise AssertionError(self._message(case, timeout, dead or failed, silent))

    def _hear_all(self, timeout: float) -> Member | None:
        """Wait for all answers, once one rank failed only a little longer. The first that failed."""
        failed, deadline = None, time.monotonic() + timeout
        with selectors.DefaultSelector() as waiting:
            for member in self._members:
                waiting.register(member.answers, selectors.EVENT_READ, member)
            while waiting.get_map() and (left := deadline - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    member = key.data
                    member.hear()
                    if member.gone or member.answer is not None:
                        waiting.unregister(member.answers)
                    if failed is None and (member.gone or "error" in (member.answer or {})):
                        failed, deadline = member, min(deadline, time.monotonic() + GRACE_S)
        return failed

    def _message(self, case: str, timeout: float, failed: Member | None, silent: list[Member]) -> str:
        lines = []
        if failed is not None:
            where = f"rank {failed.rank} of {self.world}, {case}"
            died = f"died with exit code {failed.code()}" if failed.gone else failed.answer["error"]
            lines.append(f"{where}: {died}\n{failed.printed}")
        for member in silent:
            spoke = "had not answered" if failed is not None else f"did not answer within {timeout:g} s"
            lines.append(f"rank {member.rank} of {self.world}, {case}: {spoke}\n{member.printed}")
        return "\n".join(lines)
