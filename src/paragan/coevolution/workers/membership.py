"""The workers that have come, what they say, and who is gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from paragan.core.errors import ParaganError, RankError
from paragan.distributed.launch.handshake import has_ended
from paragan.distributed.launch.rank_env import RESUME_HINT
from paragan.distributed.transports.control import ControlConnection
from paragan.distributed.transports.failure_detector import FailureDetector, Silence
from paragan.distributed.transports.heartbeat import PeriodicHeartbeat

POLL_S = 0.02


class FailedWorker(Exception):
    """Somebody who takes part is gone: others have to take over."""


@dataclass
class Member:
    """One worker. beats: tell it that the coordinator lives. rank: among those that take part, -1 for none; speed:
    cells per second of its last generation.

    state, progress: as its last beat told them. moved: when it did something last, be it only a step. is_suspect: it is
    silent for longer than it usually is.
    """

    name: str
    line: ControlConnection
    beats: PeriodicHeartbeat
    rank: int = -1
    speed: float | None = None
    state: str = "inactive"
    progress: Any = None
    moved: float = 0.0
    is_suspect: bool = False
    heard: deque[Mapping[str, Any]] = field(default_factory=deque)

    def take(self, kind: str, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The first message of this kind that says this; older ones stay."""
        for message in self.heard:
            if message["kind"] == kind and all(message.get(key) == value for key, value in wanted.items()):
                self.heard.remove(message)
                return message
        return None


class Membership:
    """accept: the next worker that has come, if there is one. gone: hears what is known of one that is no more.

    timeout_s: that one may take for an answer without doing a single step, though its heart beats. is_recoverable:
    whether the others can take over from one that is gone; if not, the run ends.

    stale: who takes part is to change. broken: somebody who takes part is gone.
    """

    def __init__(
        self,
        accept: Callable[[], ControlConnection | None],
        say: Callable[[str], None],
        heartbeat_s: float,
        timeout_s: float,
        gone: Callable[[Mapping[str, Any]], None] = lambda about: None,
        is_recoverable: bool = True,
    ) -> None:
        self.accept, self.say, self.gone, self.timeout_s, self.is_recoverable = (
            accept,
            say,
            gone,
            timeout_s,
            is_recoverable,
        )
        self.members: list[Member] = []
        self.is_stale, self.has_failed = True, False
        self._over = False
        self._detector, self._count = FailureDetector(heartbeat_s, timeout_s), 0
        self._fatal: RankError | None = None

    @property
    def active(self) -> list[Member]:
        """Those that take part, by rank."""
        return [member for member in self.members if member.rank >= 0]

    def admit(self) -> int:
        """Whoever has come takes part from the next edge on; how many there are now."""
        while (line := self.accept()) is not None:
            self._count += 1
            name, now = f"worker {self._count} ({line.peer_info.get('host', line.peer_address)})", time.monotonic()
            self.members.append(
                Member(name, line, PeriodicHeartbeat(line, self._detector.heartbeat_s, dict), moved=now)
            )
            self._detector.record_arrival(name, now)
            self.is_stale = True
        return len(self.members)

    def send(self, member: Member, kind: str, **values: Any) -> None:
        """Where it cannot be sent the worker is gone."""
        try:
            member.line.send(kind, **values)
        except RankError as error:
            if member in self.members:
                self._part(member, str(error))

    def collect(self, kind: str, **wanted: Any) -> dict[int, Mapping[str, Any]]:
        """What everybody who takes part says of this, by rank. `Lost` where somebody is gone meanwhile."""
        found: dict[int, Mapping[str, Any]] = {}
        asked = time.monotonic()
        while True:
            self.poll()
            if self.has_failed:
                raise self.failure()
            for member in self.active:
                if member.rank not in found and (message := member.take(kind, wanted)) is not None:
                    found[member.rank] = message
            missing = [member for member in self.active if member.rank not in found]
            if not missing:
                return found
            self._wait_for(missing, asked)

    def drop_all(self, membership: str) -> dict[str, Mapping[str, Any]]:
        """What everybody here says that it has, after giving up what was under way; by name."""
        found: dict[str, Mapping[str, Any]] = {}
        asked = time.monotonic()
        for member in self.members:
            self.send(member, "drop", membership=membership)
        while missing := [member for member in self.members if member.name not in found]:
            self.poll()
            for member in missing:
                if (message := member.take("dropped", {"membership": membership})) is not None:
                    found[member.name] = message
                    member.heard.clear()  # what it said before is of a membership that is no more
            self._wait_for([member for member in self.members if member.name not in found], asked)
        self.has_failed = False
        return found

    def poll(self) -> None:
        """Take what has come, and part with who is gone or silent. What fails on one would fail on any other."""
        for member in list(self.members):
            while (message := member.line.receive(0.0)) is not None:
                self._heard(member, message, time.monotonic())
            if member.line.disconnect_reason is not None and self._over:
                self.members.remove(member)  # it went home
                self._detector.forget(member.name)
            elif member.line.disconnect_reason is not None:
                self._part(member, str(member.line.disconnect_reason))
        suspects = self._detector.suspects(time.monotonic())
        for member in list(self.members):
            self._judge(member, suspects.get(member.name))

    def check_failed(self) -> bool:
        """Looked at while data is waited for."""
        self.poll()
        return self.has_failed

    def failure(self) -> FailedWorker:
        """Something did not come: whoever turns out to be here takes part from now on.

        Raises the error that ended the run, if one did while data was waited for.
        """
        if self._fatal is not None:
            raise self._fatal
        self.is_stale = True
        return FailedWorker()

    def dismiss(self) -> None:
        """Send everybody home. Who leaves from now on is not missed."""
        self._over = True
        for member in list(self.members):
            with suppress(RankError):
                member.line.send("end")

    def close(self) -> None:
        for member in self.members:
            member.beats.close(1.0)
            member.line.close()

    def _judge(self, member: Member, silence: Silence | None) -> None:
        """Report a worker that is silent, or is no longer; a failure only where it cannot be merely slow."""
        if silence is None:
            if member.is_suspect:
                self.say(f"workers   {member.name} responds again")
        elif has_ended(member.line.peer_info):
            self._part(member, "its process has ended")
        elif silence.is_failure:
            self._part(member, f"no heartbeat for {silence.seconds:.1f} s")
        elif not member.is_suspect:
            limit_s = f"{silence.fail_after_s:.1f} s"
            self.say(f"workers   {member.name} is late: no heartbeat for {silence.seconds:.1f} s (fails at {limit_s})")
        member.is_suspect = silence is not None

    def _heard(self, member: Member, message: Mapping[str, Any], now: float) -> None:
        self._detector.record_arrival(member.name, now)
        if message["kind"] != "beat":
            member.moved = now
        match message["kind"]:
            case "beat":
                if message.get("progress") != member.progress:
                    member.moved = now
                member.state, member.progress = str(message.get("state", member.state)), message.get("progress")
            case "failed":
                raise _worker_error(member.name, message)
            case "lost":
                self.has_failed = True
            case _:
                member.heard.append(message)

    def _wait_for(self, missing: Sequence[Member], asked: float) -> None:
        """A moment; but not for ever, for those whose heart beats though they do nothing."""
        now = time.monotonic()
        for member in missing:
            if member in self.members and now - max(asked, member.moved) > self.timeout_s:
                self._part(member, f"alive, but it did nothing for {self.timeout_s:g} s")
        if missing:
            time.sleep(POLL_S)

    def _part(self, member: Member, why: str) -> None:
        self.say(f"workers   {member.name} failed: {why}")
        self.members.remove(member)
        self._detector.forget(member.name)
        self.is_stale, self.has_failed = True, self.has_failed or member.rank >= 0
        member.beats.close(0.0)
        member.line.begin_close()
        self.gone(member.line.peer_info)
        if not self.is_recoverable:
            self._fatal = RankError(f"{member.name} failed ({why}), which ends a run over MPI; {RESUME_HINT}")
            raise self._fatal


def median(speeds: Sequence[float | None]) -> float:
    """Of those that are known; 1 where none is."""
    known = sorted(speed for speed in speeds if speed is not None)
    return known[len(known) // 2] if known else 1.0


def _worker_error(name: str, message: Mapping[str, Any]) -> ParaganError:
    error = ParaganError(f"{name}: {message['reason']}")
    error.exit_code = int(message.get("code", 1))
    return error
