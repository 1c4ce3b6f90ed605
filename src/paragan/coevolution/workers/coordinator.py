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
from paragan.coevolution.workers.cell_assignment import assign_cells, generation_seconds
from paragan.coevolution.workers.genome_exchange import exchange_routes, torus_shape, transfer_cells, transfer_routes
from paragan.coevolution.workers.membership import POLL_S, FailedWorker, Membership, median
from paragan.coevolution.workers.recovery import RecoverySource, recovery_sources
from paragan.core.errors import ConfigError, RankError
from paragan.distributed.transports.communicator import Communicator

_MIN_SPEEDUP = 1.15  # cells move for generations that become shorter by so much
_MIN_GENERATIONS = 2  # generations in a row that have to say so

CommunicatorFactory = Callable[[Mapping[str, Any], Callable[[], bool]], Communicator]


@dataclass
class GenerationResult:
    """A generation, from all workers. cells: what is told of each, by number. numbers: means over cells, by name."""

    cells: dict[int, dict[str, Any]]
    numbers: dict[str, float]
    profile: Profile


@dataclass(frozen=True)
class StalenessLimit:
    """age: generations that who is ahead may be ahead of who is last, 0 being lock-step. last: of the run."""

    age: int
    last: int


class Coordinator:
    """meet: makes the communicator that an order is about; this process has the rank after the last worker's. like:
    genomes of the grid's kind. timeout_s: that workers have to come.
    """

    def __init__(
        self,
        membership: Membership,
        shape: tuple[int, int],
        topology: Callable[[int], Topology],
        meet: CommunicatorFactory,
        like: Centre,
        pace: StalenessLimit,
        timeout_s: float,
    ) -> None:
        self.membership, self.shape, self.topology, self.meet, self.like = membership, shape, topology, meet, like
        self.pace, self.timeout_s = pace, timeout_s
        self.states: dict[int, CellState] = {}  # as they were gathered last, or read from a checkpoint
        self.at = 0  # generations that all workers have done
        self._edge = 0  # at which `states` were
        self._owners: list[int] = []
        self._near: Topology | None = None  # that the workers have met for
        self._number, self._slow = 0, 0
        self._communicator: Communicator | None = None

    def resume(self, states: Mapping[int, CellState], at: int) -> None:
        """Begin at an edge that a checkpoint holds."""
        self.states, self.at, self._edge = dict(states), at, at

    def evolve(self, target: int) -> GenerationResult:
        """Return when all cells have done `target` generations; what was told of the last."""
        done: GenerationResult | None = None
        while done is None or self.at < target:
            try:
                self.membership.admit()
                if self.membership.is_stale or self._near != self.topology(self.at) or self._unbalanced():
                    self._assign()
                done = self._generation()
            except FailedWorker:
                continue
        return done

    def collect(self) -> dict[int, CellState]:
        """How all cells stood at the last edge that all have reached, from the workers."""
        while self._edge != self.at or not self.states:
            try:
                if self.membership.is_stale:
                    self._assign()
                self._gather()
            except FailedWorker:
                continue
        return self.states

    def end(self) -> None:
        """Send everybody home, and leave together if all are well."""
        well = not (self.membership.is_stale or self.membership.has_failed)
        self.membership.dismiss()
        if self._communicator is not None:
            try:
                if well:
                    self._communicator.close()
            except RankError:
                well = False
            if not well:
                self._communicator.abort()
        self.membership.close()

    def await_workers(self, count: int, alive: Callable[[], str]) -> None:
        """Return when so many have come. alive: why there is no hope for it; empty: there is."""
        began = time.monotonic()
        while self.membership.admit() < count:
            if why := alive():
                raise ConfigError(f"workers: {why}")
            if time.monotonic() - began > self.timeout_s:
                raise RankError(f"workers: found {len(self.membership.members)} of {count} within {self.timeout_s:g} s")
            self.membership.poll()
            time.sleep(POLL_S)

    @property
    def workers(self) -> list[dict[str, Any]]:
        """For the record: what each offers, and has."""
        return [
            {
                "name": member.name,
                **{key: member.line.peer_info.get(key) for key in ("host", "cores", "device")},
                "state": member.state,
                "cells": self._owners.count(member.rank),
                "cells_per_s": member.speed,
            }
            for member in self.membership.members
        ]

    def _generation(self) -> GenerationResult:
        for member in self.membership.active:
            self.membership.send(member, "go", until=self._until())
        answers = self.membership.collect("done", generation=self.at + 1)
        self.at += 1
        for member in self.membership.active:
            cells = self._owners.count(member.rank)
            member.speed = cells / max(float(answers[member.rank]["seconds"]), 1e-6)
        return _merge_answers(list(answers.values()))

    def _until(self) -> int:
        """Generations that may be done before those who are last have done another."""
        until = self.at + 1
        while until < min(self.pace.last, self.at + 1 + self.pace.age) and self.topology(until) == self._near:
            until += 1
        return until

    def _gather(self) -> None:
        for member in self.membership.active:
            self.membership.send(member, "gather", edge=self.at)
        assert self._communicator is not None
        try:
            came = self._communicator.gather([])
        except RankError:
            raise self.membership.failure() from None
        assert came is not None
        parts = [part for of_one in came for part in of_one]
        found = [CellState.unpack(parts[place : place + 3], self.like) for place in range(0, len(parts), 3)]
        self.membership.collect("gathered", edge=self.at)
        self.states, self._edge = {state.number: state for state in found}, self.at

    def _assign(self) -> None:
        """A new membership: whoever is here gets cells, from whoever has them as they were at the newest edge."""
        before, (rows, columns) = {member.rank: member.name for member in self.membership.members}, self.shape
        self._number += 1
        held = self._dropped()
        if not self.membership.members:
            raise RankError("workers: found none left, expected at least one; give the same command again")
        for rank, member in enumerate(self.membership.members):
            member.rank = rank if rank < rows * columns else -1
        active = self.membership.active
        held = {member.name: held[member.name] for member in active}
        speeds = [member.speed or median([m.speed for m in active]) for member in active]
        last = [before.get(owner, "") for owner in self._owners] or [""] * rows * columns
        self._owners = assign_cells(rows, columns, speeds)
        held["coordinator"] = {self._edge: list(self.states)}
        ranks = {member.name: member.rank for member in active} | {"coordinator": len(active)}
        self.at, found = recovery_sources(held, last, may_differ=self.pace.age > 0)
        self._near = self.topology(self.at)
        self._meet(ranks, found)
        self.membership.collect("ready", membership=f"{self._number}")
        self.membership.is_stale = False
        counts = [self._owners.count(member.rank) for member in active]
        self.membership.say(
            f"workers   {len(active)} with {', '.join(map(str, counts))} cells, from generation {self.at}"
        )

    def _meet(self, ranks: Mapping[str, int], found: Sequence[RecoverySource | None]) -> None:
        """Tell the workers who has which cells, and move those that go elsewhere. found: by cell, where it is now."""
        assert self._near is not None
        froms = [None if source is None else ranks[source.name] for source in found]
        edges: dict[str, list[tuple[int, int]]] = {}
        for cell, source in enumerate(found):
            if source is not None:
                edges.setdefault(str(ranks[source.name]), []).append((cell, source.edge))
        active, going = self.membership.active, transfer_routes(self._owners, froms)
        root = len(active)
        ways = {way for way in {**exchange_routes(self._owners, self._near), **going} if root not in way}
        order = {
            "membership": f"{self._number}",
            "size": root,
            "owners": self._owners,
            "sources": froms,
            "edges": edges,
            "generation": self.at,
            "torus": torus_shape(ways, root),
            "places": [member.line.peer_info.get("place") for member in active],
        }
        for member in active:
            peers = sorted(b for a, b in ways if a == member.rank)
            self.membership.send(member, "join", rank=member.rank, peers=peers, **order)
        try:
            communicator = self._communicator = self.meet(
                {"rank": root, "peers": [], **order}, self.membership.check_failed
            )
            transfer_cells(communicator.exchange_with_root, root, going, self.states, lambda: self.like)
        except RankError:
            raise self.membership.failure() from None

    def _dropped(self) -> dict[str, dict[int, list[int]]]:
        """Everybody gives up what is under way and says what it has: by name, edge -> cells."""
        if self._communicator is not None:
            self._communicator.abort()
            self._communicator = None
        told = self.membership.drop_all(f"{self._number}")
        return {
            member.name: {int(edge): list(cells) for edge, cells in told[member.name]["held"].items()}
            for member in self.membership.members
        }

    def _unbalanced(self) -> bool:
        """Whether other shares have been worth it for some generations."""
        active = self.membership.active
        if len(active) < 2 or any(member.speed is None for member in active):
            return False
        speeds = [float(member.speed or 0.0) for member in active]
        worth = generation_seconds(self._owners, speeds) > _MIN_SPEEDUP * generation_seconds(
            assign_cells(*self.shape, speeds), speeds
        )
        self._slow = self._slow + 1 if worth else 0
        if self._slow < _MIN_GENERATIONS:
            return False
        self._slow = 0
        return True


def _merge_answers(answers: Sequence[Mapping[str, Any]]) -> GenerationResult:
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
    return GenerationResult(cells, {name: total / count for name, (total, count) in sums.items()}, profile)
