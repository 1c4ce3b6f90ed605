"""Membership: the workers of a grid, their messages, and their failures."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from paragan.core.errors import RankError
from paragan.distributed.launch.rank_env import RESUME_HINT
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.transports.heartbeat import FailureDetector, PeriodicHeartbeat, Silence
from paragan.extensions.grid.workers.handshake import has_ended, reported_error

POLL_S = 0.02


class FailedWorker(Exception):
    """Failure of an active worker; the others have to take over its cells."""


@dataclass(kw_only=True)
class Member:
    """Worker of a grid, as the coordinator knows it.

    heartbeat: sends heartbeats to the worker. rank: among the active workers, -1 if it is spare. speed: cells per
    second of its last generation. state, progress: from its last heartbeat. progressed_at: time of its last progress,
    even a single step. is_suspect: it has been silent for longer than usual. messages: not read yet.
    """

    name: str
    connection: ControlConnection
    heartbeat: PeriodicHeartbeat
    rank: int = -1
    speed: float | None = None
    state: str = "inactive"
    progress: Any = None
    progressed_at: float = 0.0
    is_suspect: bool = False
    messages: deque[Mapping[str, Any]] = field(default_factory=deque)

    def take(self, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Remove and return the first message that has these values; None without one."""
        for message in self.messages:
            if values.items() <= message.items():
                self.messages.remove(message)
                return message
        return None


@dataclass(kw_only=True)
class Membership:
    """Workers of a grid.

    accept: returns the next worker that joins, or None. on_failure: called with the description of a failed worker.
    timeout_s: time a worker may take for an answer without any progress, even if it sends heartbeats. is_recoverable:
    whether others can take over the cells of a failed worker; if not (over MPI alone), the run ends.

    is_stale: the active workers have to be chosen again. must_repeat: the work in progress cannot end, since an active
    worker has failed, or another cannot reach it. _fatal: the error that ended the run. It is stored, because a
    communicator that waits for data turns an error of `check_failed` into one of its own.
    """

    accept: Callable[[], ControlConnection | None]
    log: Callable[[str], None]
    heartbeat_s: float
    timeout_s: float
    on_failure: Callable[[Mapping[str, Any]], None] = lambda worker: None
    is_recoverable: bool = True
    members: list[Member] = field(default_factory=list)
    is_stale: bool = True
    must_repeat: bool = False
    _is_ending: bool = False
    _num_joined: int = 0
    _fatal: RankError | None = None

    def __post_init__(self) -> None:
        self._detector = FailureDetector(self.heartbeat_s, self.timeout_s)

    @property
    def active(self) -> list[Member]:
        """Workers that train cells, by rank."""
        return [member for member in self.members if member.rank >= 0]

    def admit(self) -> int:
        """Admit waiting workers, active from the next boundary on; returns the member count."""
        while (connection := self.accept()) is not None:
            self._num_joined += 1
            name = f"worker {self._num_joined} ({connection.peer_info.get('host', connection.peer_address)})"
            now = time.monotonic()
            heartbeat = PeriodicHeartbeat(connection.send, self.heartbeat_s, status=lambda: {})
            self.members.append(Member(name=name, connection=connection, heartbeat=heartbeat, progressed_at=now))
            self._detector.record_arrival(name, now)
            self.is_stale = True
        return len(self.members)

    def send(self, member: Member, kind: str, **values: Any) -> None:
        """Send a message; an unreachable worker has failed."""
        try:
            member.connection.send(kind, **values)
        except RankError as error:
            if member in self.members:
                self._remove(member, str(error))

    def collect(self, kind: str, **values: Any) -> dict[str, Mapping[str, Any]]:
        """Wait for a message of this kind from every active worker; returns them by name.

        values: that the message must have. Raises `FailedWorker` if a worker fails meanwhile.
        """
        began = time.monotonic()
        answers: dict[str, Mapping[str, Any]] = {}
        while True:
            self.poll()
            if self.must_repeat:
                self.raise_failure()
            if self._take_answers(self.active, {"kind": kind, **values}, answers, began):
                return answers
            time.sleep(POLL_S)

    def drop_all(self, membership: int) -> dict[str, Mapping[str, Any]]:
        """Make all workers stop their work in progress; returns their replies by name."""
        for member in list(self.members):
            self.send(member, "drop", membership=membership)
        began = time.monotonic()
        answers: dict[str, Mapping[str, Any]] = {}
        wanted = {"kind": "dropped", "membership": membership}
        while not self._take_answers(self.members, wanted, answers, began):
            time.sleep(POLL_S)
            self.poll()
        # a failure that a worker has reported meanwhile belongs to the work that is stopped, too
        for member in self.members:
            member.messages.clear()  # they belong to the previous membership
        self.must_repeat = False
        return answers

    def poll(self) -> None:
        """Read all messages, and remove workers that have failed or are silent.

        Raises the error that a worker reports: it would occur on any other worker too.
        """
        for member in list(self.members):
            while (message := member.connection.receive(0.0)) is not None:
                self._receive(member, message, time.monotonic())
            if member.connection.disconnect_reason is not None and self._is_ending:
                self.members.remove(member)  # it was released
                self._detector.forget(member.name)
            elif member.connection.disconnect_reason is not None:
                self._remove(member, str(member.connection.disconnect_reason))
        suspects = self._detector.suspects(time.monotonic())
        for member in list(self.members):
            self._check_silence(member, suspects.get(member.name))

    def check_failed(self) -> bool:
        """Whether the work in progress cannot end; called while waiting for data."""
        self.poll()
        return self.must_repeat

    def raise_failure(self) -> NoReturn:
        """Mark the membership as stale, and raise `FailedWorker`, or the error that ended the run."""
        if self._fatal is not None:
            raise self._fatal from None
        self.is_stale = True
        raise FailedWorker from None

    def release(self) -> None:
        """Release all workers; those that disconnect afterwards have not failed."""
        self._is_ending = True
        for member in list(self.members):
            with suppress(RankError):
                member.connection.send("end")

    def close(self) -> None:
        """Close the connections to all workers."""
        for member in self.members:
            member.heartbeat.close(1.0)
            member.connection.close()

    def _check_silence(self, member: Member, silence: Silence | None) -> None:
        """Report a worker that is silent or responds again; remove it if it has failed."""
        if silence is None:
            if member.is_suspect:
                self.log(f"workers   {member.name} responds again")
        elif has_ended(member.connection.peer_info):
            self._remove(member, "its process has ended")
        elif silence.is_failure:
            self._remove(member, f"no heartbeat for {silence.seconds:.1f} s")
        elif not member.is_suspect:
            since = f"{silence.seconds:.1f} s (fails at {silence.fail_after_s:.1f} s)"
            self.log(f"workers   {member.name} is late: no heartbeat for {since}")
        member.is_suspect = silence is not None

    def _receive(self, member: Member, message: Mapping[str, Any], now: float) -> None:
        self._detector.record_arrival(member.name, now)
        if message["kind"] != "beat":
            member.progressed_at = now
        match message["kind"]:
            case "beat":
                if message.get("progress") != member.progress:
                    member.progressed_at = now
                member.state = str(message.get("state", member.state))
                member.progress = message.get("progress")
            case "failed":
                raise reported_error(member.name, message)
            case "unreachable":  # another worker is, from this one
                self.must_repeat = True
            case _:
                member.messages.append(message)

    def _take_answers(
        self, members: Sequence[Member], wanted: Mapping[str, Any], answers: dict[str, Mapping[str, Any]], began: float
    ) -> bool:
        """Add the messages that have arrived to `answers`; return whether all have.

        Removes workers that send heartbeats but make no progress.
        """
        missing = []
        for member in members:
            if member.name not in answers and (message := member.take(wanted)) is not None:
                answers[member.name] = message
            if member.name not in answers:
                missing.append(member)
        now = time.monotonic()
        for member in missing:
            if now - max(began, member.progressed_at) > self.timeout_s:
                self._remove(member, f"it sends heartbeats but made no progress for {self.timeout_s:g} s")
        return not missing

    def _remove(self, member: Member, reason: str) -> None:
        """Remove a worker that has failed."""
        self.log(f"workers   {member.name} failed: {reason}")
        self.members.remove(member)
        self._detector.forget(member.name)
        self.is_stale = True
        self.must_repeat = self.must_repeat or member.rank >= 0
        # without waiting: the process may hang, and the others are held up meanwhile
        member.heartbeat.close(0.0)
        member.connection.begin_close()
        self.on_failure(member.connection.peer_info)
        if not self.is_recoverable:
            self._fatal = RankError(f"{member.name} failed ({reason}), which ends a run over MPI; {RESUME_HINT}")
            raise self._fatal
