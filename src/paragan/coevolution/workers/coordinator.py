"""Who shares out the cells of a grid to workers, tells them when to go on, and notices who is gone or slow.

It is never in the way of the genomes that travel. A generation counts when every worker has done it; one that somebody
did not live to see the end of is played again by the others, from the edge before. In lock-step, every draw being keyed
by place, it comes out the same, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paragan.coevolution.cell_state import CellState, Centre
from paragan.coevolution.profile import Profile
from paragan.coevolution.topology import Topology
from paragan.coevolution.workers.cell_assignment import shared_out, slowest
from paragan.coevolution.workers.genome_exchange import moved, moves, sent, torus_of
from paragan.coevolution.workers.membership import LOOK_S, FailedWorker, Membership, median
from paragan.coevolution.workers.recovery import RecoverySource, sources
from paragan.core.errors import ConfigError, RankError
from paragan.distributed.transports.communicator import Communicator

_WORTH = 1.15  # cells move for generations that become shorter by so much
_MEASURED = 2  # generations in a row that have to say so

Meet = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]


@dataclass
class Done:
    """A generation, from all workers. cells: what is told of each, by number. numbers: means over cells, by name."""

    cells: dict[int, dict[str, Any]]
    numbers: dict[str, float]
    profile: Profile


@dataclass(frozen=True)
class HeartbeatOptions:
    """age: generations that who is ahead may be ahead of who is last, 0 being lock-step. last: of the run."""

    age: int
    last: int


class Coordinator:
    """meet: makes the communicator that an order is about; this process has the rank after the last worker's. like:
    genomes of the grid's kind. timeout_s: that workers have to come.
    """

    def __init__(
        self,
        roster: Membership,
        shape: tuple[int, int],
        topology: Callable[[int], Topology],
        meet: Meet,
        like: Centre,
        pace: HeartbeatOptions,
        timeout_s: float,
    ) -> None:
        self.roster, self.shape, self.topology, self.meet, self.like = roster, shape, topology, meet, like
        self.pace, self.timeout_s = pace, timeout_s
        self.standings: dict[int, CellState] = {}  # as they were gathered last, or read from a checkpoint
        self.at = 0  # generations that all workers have done
        self._edge = 0  # at which `standings` were
        self._owners: list[int] = []
        self._near: Topology | None = None  # that the workers have met for
        self._number, self._slow = 0, 0
        self._communicator: Communicator | None = None

    def resume(self, standings: Mapping[int, CellState], at: int) -> None:
        """Begin at an edge that a checkpoint holds."""
        self.standings, self.at, self._edge = dict(standings), at, at

    def evolve(self, target: int) -> Done:
        """Return when all cells have done `target` generations; what was told of the last."""
        done: Done | None = None
        while done is None or self.at < target:
            try:
                self.roster.admit()
                if self.roster.stale or self._near != self.topology(self.at) or self._unbalanced():
                    self._assign()
                done = self._generation()
            except FailedWorker:
                continue
        return done

    def collect(self) -> dict[int, CellState]:
        """How all cells stood at the last edge that all have reached, from the workers."""
        while self._edge != self.at or not self.standings:
            try:
                if self.roster.stale:
                    self._assign()
                self._gather()
            except FailedWorker:
                continue
        return self.standings

    def end(self) -> None:
        """Send everybody home, and leave together if all are well."""
        well = not (self.roster.stale or self.roster.broken)
        self.roster.dismiss()
        if self._communicator is not None:
            try:
                if well:
                    self._communicator.close()
            except RankError:
                well = False
            if not well:
                self._communicator.drop()
        self.roster.close()

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

    @property
    def workers(self) -> list[dict[str, Any]]:
        """For the record: what each offers, and has."""
        return [
            {
                "name": member.name,
                **{key: member.line.about.get(key) for key in ("host", "cores", "device")},
                "state": member.state,
                "cells": self._owners.count(member.rank),
                "cells_per_s": member.speed,
            }
            for member in self.roster.members
        ]

    def _generation(self) -> Done:
        for member in self.roster.seated:
            self.roster.send(member, "go", until=self._until())
        answers = self.roster.answers("done", generation=self.at + 1)
        self.at += 1
        for member in self.roster.seated:
            cells = self._owners.count(member.rank)
            member.speed = cells / max(float(answers[member.rank]["seconds"]), 1e-6)
        return _joined(list(answers.values()))

    def _until(self) -> int:
        """Generations that may be done before those who are last have done another."""
        until = self.at + 1
        while until < min(self.pace.last, self.at + 1 + self.pace.age) and self.topology(until) == self._near:
            until += 1
        return until

    def _gather(self) -> None:
        for member in self.roster.seated:
            self.roster.send(member, "gather", edge=self.at)
        assert self._communicator is not None
        try:
            came = self._communicator.gather([])
        except RankError:
            raise self.roster.lost() from None
        assert came is not None
        parts = [part for of_one in came for part in of_one]
        found = [CellState.unpacked(parts[place : place + 3], self.like) for place in range(0, len(parts), 3)]
        self.roster.answers("gathered", edge=self.at)
        self.standings, self._edge = {standing.number: standing for standing in found}, self.at

    def _assign(self) -> None:
        """A new membership: whoever is here gets cells, from whoever has them as they were at the newest edge."""
        before, (rows, columns) = {member.rank: member.name for member in self.roster.members}, self.shape
        self._number += 1
        held = self._dropped()
        if not self.roster.members:
            raise RankError("workers: found none left, expected at least one; give the same command again")
        for rank, member in enumerate(self.roster.members):
            member.rank = rank if rank < rows * columns else -1
        seated = self.roster.seated
        held = {member.name: held[member.name] for member in seated}
        speeds = [member.speed or median([m.speed for m in seated]) for member in seated]
        last = [before.get(owner, "") for owner in self._owners] or [""] * rows * columns
        self._owners = shared_out(rows, columns, speeds)
        held["coordinator"] = {self._edge: list(self.standings)}
        ranks = {member.name: member.rank for member in seated} | {"coordinator": len(seated)}
        self.at, found = sources(held, last, may_differ=self.pace.age > 0)
        self._near = self.topology(self.at)
        self._meet(ranks, found)
        self.roster.answers("ready", membership=f"{self._number}")
        self.roster.stale = False
        counts = [self._owners.count(member.rank) for member in seated]
        self.roster.say(f"workers   {len(seated)} with {', '.join(map(str, counts))} cells, from generation {self.at}")

    def _meet(self, ranks: Mapping[str, int], found: Sequence[RecoverySource | None]) -> None:
        """Tell the workers who has which cells, and move those that go elsewhere. found: by cell, where it is now."""
        assert self._near is not None
        froms = [None if source is None else ranks[source.name] for source in found]
        edges: dict[str, list[tuple[int, int]]] = {}
        for cell, source in enumerate(found):
            if source is not None:
                edges.setdefault(str(ranks[source.name]), []).append((cell, source.edge))
        seated, going = self.roster.seated, moves(self._owners, froms)
        root = len(seated)
        ways = {way for way in {**sent(self._owners, self._near), **going} if root not in way}
        order = {
            "membership": f"{self._number}",
            "size": root,
            "owners": self._owners,
            "sources": froms,
            "edges": edges,
            "generation": self.at,
            "torus": torus_of(ways, root),
            "places": [member.line.about.get("place") for member in seated],
        }
        for member in seated:
            peers = sorted(b for a, b in ways if a == member.rank)
            self.roster.send(member, "join", rank=member.rank, peers=peers, **order)
        try:
            communicator = self._communicator = self.meet({"rank": root, "peers": [], **order}, self.roster.is_broken)
            moved(communicator.hand, root, going, self.standings, lambda: self.like)
        except RankError:
            raise self.roster.lost() from None

    def _dropped(self) -> dict[str, dict[int, list[int]]]:
        """Everybody gives up what is under way and says what it has: by name, edge -> cells."""
        if self._communicator is not None:
            self._communicator.drop()
            self._communicator = None
        told = self.roster.dropped(f"{self._number}")
        return {
            member.name: {int(edge): list(cells) for edge, cells in told[member.name]["held"].items()}
            for member in self.roster.members
        }

    def _unbalanced(self) -> bool:
        """Whether other shares have been worth it for some generations."""
        seated = self.roster.seated
        if len(seated) < 2 or any(member.speed is None for member in seated):
            return False
        speeds = [float(member.speed or 0.0) for member in seated]
        worth = slowest(self._owners, speeds) > _WORTH * slowest(shared_out(*self.shape, speeds), speeds)
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
