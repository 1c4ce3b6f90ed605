"""The workers that have come, what they say, and who is gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paragan.core.errors import ParaganError, RankError
from paragan.transports.control import Line
from paragan.transports.heartbeat import Watch

LOOK_S = 0.02


class Lost(Exception):
    """Somebody who takes part is gone: others have to take over."""


@dataclass
class Member:
    """One worker. rank: among those that take part, -1 for none; speed: cells per second of its last generation."""

    name: str
    line: Line
    rank: int = -1
    speed: float | None = None
    beats: Mapping[str, Any] = field(default_factory=dict)
    heard: deque[Mapping[str, Any]] = field(default_factory=deque)


class Roster:
    """accept: the next worker that has come, if there is one. gone: hears what is known of one that is no more.

    stale: who takes part is to change. broken: somebody who takes part is gone.
    """

    def __init__(
        self,
        accept: Callable[[], Line | None],
        say: Callable[[str], None],
        beat_s: float,
        gone: Callable[[Mapping[str, Any]], None] = lambda about: None,
    ) -> None:
        self.accept, self.say, self.gone = accept, say, gone
        self.members: list[Member] = []
        self.stale, self.broken = True, False
        self._watch, self._count = Watch(beat_s), 0

    @property
    def seated(self) -> list[Member]:
        """Those that take part, by rank."""
        return [member for member in self.members if member.rank > 0]

    def admit(self) -> int:
        """Whoever has come takes part from the next edge on; how many there are now."""
        while (line := self.accept()) is not None:
            self._count += 1
            name = f"worker {self._count} ({line.about.get('host', line.who)})"
            self.members.append(Member(name, line))
            self._watch.heard(name, time.monotonic())
            self.stale = True
        return len(self.members)

    def send(self, member: Member, kind: str, **values: Any) -> None:
        """Where it cannot be sent the worker is gone."""
        try:
            member.line.send(kind, **values)
        except RankError as error:
            if member in self.members:
                self._part(member, str(error))

    def answers(self, kind: str) -> dict[int, Mapping[str, Any]]:
        """One of everybody who takes part, by rank. `Lost` where somebody is gone meanwhile."""
        found: dict[int, Mapping[str, Any]] = {}
        while len(found) < len(self.seated):
            self.hear()
            if self.broken:
                raise self.lost()
            for member in self.seated:
                while member.heard:
                    message = member.heard.popleft()
                    if message["kind"] == kind:
                        found[member.rank] = message
            if len(found) < len(self.seated):
                time.sleep(LOOK_S)
        return found

    def hear(self) -> None:
        """Take what has come, and part with who is gone or silent. What fails on one would fail on any other."""
        for member in list(self.members):
            while (message := member.line.receive(0.0)) is not None:
                self._watch.heard(member.name, time.monotonic())
                match message["kind"]:
                    case "beat":
                        member.beats = message
                    case "failed":
                        raise _failure(member.name, message)
                    case "lost":
                        self.broken = True
                    case _:
                        member.heard.append(message)
            if member.line.lost is not None:
                self._part(member, str(member.line.lost))
        for name in self._watch.late(time.monotonic()):
            self._part(next(m for m in self.members if m.name == name), f"silent for {self._watch.missed} heartbeats")

    def is_broken(self) -> bool:
        """Looked at while data is waited for."""
        self.hear()
        return self.broken

    def lost(self) -> Lost:
        """Something did not come: whoever turns out to be here takes part from now on."""
        self.stale = True
        return Lost()

    def dismiss(self) -> None:
        """Send everybody home."""
        for member in self.members:
            self.send(member, "end")
        for member in self.members:
            member.line.close()

    def _part(self, member: Member, why: str) -> None:
        self.say(f"workers   {member.name} is gone: {why}")
        self.members.remove(member)
        self._watch.forget(member.name)
        self.stale, self.broken = True, self.broken or member.rank > 0
        member.line.part()
        self.gone(member.line.about)


def median(speeds: Sequence[float | None]) -> float:
    """Of those that are known; 1 where none is."""
    known = sorted(speed for speed in speeds if speed is not None)
    return known[len(known) // 2] if known else 1.0


def _failure(name: str, message: Mapping[str, Any]) -> ParaganError:
    error = ParaganError(f"{name}: {message['reason']}")
    error.exit_code = int(message.get("code", 1))
    return error
