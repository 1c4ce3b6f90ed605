"""Who shares out the cells of a grid to workers, tells them when to go on, and notices who is gone or slow.

It is never in the way of the genomes that travel. A generation counts when every worker has done it; one that somebody
did not live to see the end of is played again by the others, from the edge before, and every draw being keyed by place
it comes out the same, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paragan.coevolution.blocks import shared_out, slowest
from paragan.coevolution.halo import moved, moves, peers
from paragan.coevolution.profile import Profile
from paragan.coevolution.roster import LOOK_S, Lost, Roster, median
from paragan.coevolution.standing import Centre, Standing
from paragan.coevolution.topology import Topology
from paragan.core.errors import ConfigError, RankError
from paragan.transports._communicator import Communicator

_WORTH = 1.15  # cells move for generations that become shorter by so much
_MEASURED = 2  # generations in a row that have to say so

Meet = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]


@dataclass
class Done:
    """A generation, from all workers. cells: what is told of each, by number. numbers: sums and counts by name."""

    cells: dict[int, dict[str, Any]]
    numbers: dict[str, float]
    profile: Profile


class Coordinator:
    """meet: makes the communicator that an order is about, for which this process has rank 0. like: genomes of the
    grid's kind. timeout_s: that workers have to come.
    """

    def __init__(
        self,
        roster: Roster,
        shape: tuple[int, int],
        topology: Callable[[int], Topology],
        meet: Meet,
        like: Centre,
        timeout_s: float,
    ) -> None:
        self.roster, self.shape, self.topology, self.meet, self.like = roster, shape, topology, meet, like
        self.timeout_s = timeout_s
        self.standings: dict[int, Standing] = {}  # as they were gathered last, or read from a checkpoint
        self.at = 0  # generations that all workers have done
        self._edge = 0  # at which `standings` were
        self._owners: list[int] = []
        self._number, self._slow = 0, 0
        self._communicator: Communicator | None = None

    def resume(self, standings: Mapping[int, Standing], at: int) -> None:
        """Begin at an edge that a checkpoint holds."""
        self.standings, self.at, self._edge = dict(standings), at, at

    def evolve(self, target: int) -> Done:
        """Return when all cells have done `target` generations; what was told of the last."""
        done: Done | None = None
        while done is None or self.at < target:
            try:
                self.roster.admit()
                if self.roster.stale or self._unbalanced():
                    self._assign()
                done = self._generation()
            except Lost:
                continue
        return done

    def collect(self) -> dict[int, Standing]:
        """How all cells stand now, from the workers."""
        while self._edge != self.at or not self.standings:
            try:
                if self.roster.stale:
                    self._assign()
                self._gather()
            except Lost:
                continue
        return self.standings

    def end(self) -> None:
        """Send everybody home."""
        self.roster.dismiss()
        if self._communicator is not None:
            self._communicator.drop()

    def await_workers(self, count: int, alive: Callable[[], str]) -> None:
        """Return when so many have come. alive: why there is no hope for it; empty: there is."""
        began = time.monotonic()
        while self.roster.admit() < count:
            if why := alive():
                raise ConfigError(f"workers: {why}")
            if time.monotonic() - began > self.timeout_s:
                raise RankError(f"workers: found {len(self.roster.members)} of {count} within {self.timeout_s:g} s")
            self.roster.hear()
            time.sleep(LOOK_S)

    def _generation(self) -> Done:
        for member in self.roster.seated:
            self.roster.send(member, "go", generation=self.at)
        answers = self.roster.answers("done")
        self.at += 1
        for member in self.roster.seated:
            cells = sum(1 for owner in self._owners if owner == member.rank)
            member.speed = cells / max(float(answers[member.rank]["seconds"]), 1e-6)
        return _joined(list(answers.values()))

    def _gather(self) -> None:
        for member in self.roster.seated:
            self.roster.send(member, "gather")
        assert self._communicator is not None
        try:
            came = self._communicator.gather([])
        except RankError:
            raise self.roster.lost() from None
        assert came is not None
        parts = [part for of_one in came for part in of_one]
        found = [Standing.unpacked(parts[place : place + 3], self.like) for place in range(0, len(parts), 3)]
        self.roster.answers("gathered")
        self.standings, self._edge = {standing.number: standing for standing in found}, self.at

    def _assign(self) -> None:
        """A new membership: whoever is here gets cells, from whoever has them as they were at the newest edge."""
        before, (rows, columns) = {member.rank: member.name for member in self.roster.members}, self.shape
        held = self._dropped()
        if not self.roster.members:
            raise RankError("workers: found none left, expected at least one; give the same command again")
        seated = self.roster.members[: rows * columns]
        for rank, member in enumerate(self.roster.members, start=1):
            member.rank = rank if member in seated else -1
        speeds = [member.speed or median([m.speed for m in seated]) for member in seated]
        last = [before.get(owner, "") for owner in self._owners] or [""] * rows * columns
        self._owners = [owner + 1 for owner in shared_out(rows, columns, speeds)]
        self.at, sources = self._newest({member.name: member.rank for member in seated}, held, last)
        self._number += 1
        order = {
            "membership": f"{self._number}",
            "size": len(seated) + 1,
            "owners": self._owners,
            "sources": sources,
            "generation": self.at,
        }
        ways = moves(self._owners, sources)
        for member in seated:
            near = {*peers(self._owners, self.topology(self.at), member.rank)}
            near |= {b for a, b in ways if a == member.rank}
            self.roster.send(member, "join", rank=member.rank, peers=sorted(near), **order)
        mine = {"rank": 0, "peers": sorted(b for a, b in ways if a == 0), **order}
        try:
            self._communicator = self.meet(mine, self.roster.is_broken)
            moved(self._communicator, ways, self.standings, lambda: self.like)
        except RankError:
            raise self.roster.lost() from None
        self.roster.answers("ready")
        self.roster.stale = False
        counts = [self._owners.count(member.rank) for member in seated]
        self.roster.say(f"workers   {len(seated)} with {', '.join(map(str, counts))} cells, from generation {self.at}")

    def _dropped(self) -> dict[str, dict[int, list[int]]]:
        """Everybody gives up what is under way and says what it has: by name, edge -> cells."""
        if self._communicator is not None:
            self._communicator.drop()
            self._communicator = None
        for member in self.roster.members:
            self.roster.send(member, "drop", membership=f"{self._number}")
        held: dict[str, dict[int, list[int]]] = {}
        while any(member.name not in held for member in self.roster.members):
            self.roster.hear()
            for member in self.roster.members:
                while member.heard:
                    message = member.heard.popleft()
                    if message["kind"] == "dropped" and message["membership"] == f"{self._number}":
                        held[member.name] = {int(edge): list(cells) for edge, cells in message["held"].items()}
            time.sleep(LOOK_S)
        self.roster.broken = False
        return held

    def _newest(
        self, ranks: Mapping[str, int], held: Mapping[str, Mapping[int, Sequence[int]]], last: Sequence[str]
    ) -> tuple[int, list[int | None]]:
        """The newest edge of which every cell is somewhere, and where: by cell a rank, this process having 0. Nobody
        has a grid that has yet to begin. last: by cell, who had it.
        """
        edges = {edge for name in ranks for edge in held.get(name, {})} | ({self._edge} if self.standings else set())
        for edge in sorted(edges, reverse=True):
            sources: list[int | None] = []
            for cell, own in enumerate(last):
                names = [name for name in ranks if cell in held.get(name, {}).get(edge, ())]
                found = ranks[own] if own in names else ranks[names[0]] if names else None
                spare = 0 if edge == self._edge and cell in self.standings else None
                sources.append(spare if found is None else found)
            if None not in sources:
                return edge, sources
        return 0, [None] * len(last)

    def _unbalanced(self) -> bool:
        """Whether other shares have been worth it for some generations."""
        seated = self.roster.seated
        if len(seated) < 2 or any(member.speed is None for member in seated):
            return False
        speeds = [float(member.speed or 0.0) for member in seated]
        by_rank = {member.rank: speed for member, speed in zip(seated, speeds, strict=True)}
        other = [owner + 1 for owner in shared_out(*self.shape, speeds)]
        worth = slowest(self._owners, by_rank) > _WORTH * slowest(other, by_rank)
        self._slow = self._slow + 1 if worth else 0
        if self._slow < _MEASURED:
            return False
        self._slow = 0
        return True


def _joined(answers: Sequence[Mapping[str, Any]]) -> Done:
    cells: dict[int, dict[str, Any]] = {}
    sums: dict[str, list[float]] = {}
    profile = Profile()
    for answer in answers:
        cells |= {int(number): dict(told) for number, told in answer["cells"].items()}
        for name, (total, count) in answer["numbers"].items():
            before = sums.setdefault(name, [0.0, 0])
            before[0], before[1] = before[0] + total, before[1] + count
        for mine, theirs in ((profile.wall_s, "wall_s"), (profile.cpu_s, "cpu_s")):
            for routine, seconds in answer["profile"][theirs].items():
                mine[routine] += seconds
    return Done(cells, {name: total / count for name, (total, count) in sums.items()}, profile)
