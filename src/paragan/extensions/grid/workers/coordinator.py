"""Coordinator: assigns cells to workers, starts generations, detects failed or slow workers.

Genomes are exchanged between workers directly. A generation is complete when every worker has
finished it; after a failure the remaining workers repeat it from the previous boundary. The result
is identical bit for bit, because random draws are keyed by their position.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median_high
from typing import Any

from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.cell_state import CellState, Centre
from paragan.extensions.grid.topology import Topology
from paragan.extensions.grid.transports.communicator import Communicator, CommunicatorFactory
from paragan.extensions.grid.workers.cell_assignment import assign_cells, is_unbalanced
from paragan.extensions.grid.workers.genome_exchange import (
    exchange_routes,
    transfer_cells,
    transfer_routes,
    unpack_cells,
)
from paragan.extensions.grid.workers.membership import POLL_S, FailedWorker, Member, Membership

Answer = Mapping[str, Any]
SavedCells = Mapping[str, Mapping[int, Sequence[int]]]  # numbers of cells, by worker and boundary
_MIN_GENERATIONS = 2  # consecutive unbalanced generations, before cells are reassigned


@dataclass(kw_only=True)
class Coordinator:
    """Coordinator of the workers of a grid.

    shape: rows and columns of the grid. make_communicator: makes the communicator described by an order; this process
    has the rank after the last worker's. like: genomes with the grid's networks. timeout_s: time for workers to arrive.

    `states_at` may be earlier than `at`: states are collected for a checkpoint alone, and a failure before the next one
    repeats what is missing.
    """

    membership: Membership
    shape: tuple[int, int]
    topology: Topology
    make_communicator: CommunicatorFactory
    like: Centre
    timeout_s: float
    states: dict[int, CellState] = field(default_factory=dict)  # as collected last, or resumed from
    states_at: int | None = None  # generation boundary of `states`; None: there are none
    at: int = 0  # generations finished by all workers
    _owners: list[int] = field(default_factory=list)
    _membership_number: int = 0
    _num_unbalanced: int = 0
    _communicator: Communicator | None = None

    def resume(self, states: Mapping[int, CellState], at: int) -> None:
        """Begin at the generation boundary of a checkpoint."""
        self.states = dict(states)
        self.at = at
        self.states_at = at

    def evolve(self, target: int) -> list[Answer]:
        """Run until all cells have finished `target` generations, later than `at`; return each worker's last result."""
        results: list[Answer] = []
        while not results or self.at < target:
            try:
                self.membership.admit()
                if self.membership.is_stale or self._is_unbalanced():
                    self._assign()
                results = self._run_generation()
            except FailedWorker:  # the membership is stale now: the next pass assigns its cells to the others
                continue
        return results

    def collect(self) -> dict[int, CellState]:
        """Collect the states of all cells after the last generation.

        A worker that fails meanwhile sets its cells back: they repeat what was not collected.
        """
        target = self.at
        while self.states_at != target:
            with suppress(FailedWorker):
                if self.membership.is_stale:
                    self._assign()
                if self.at < target:
                    self.evolve(target)
                self._gather()
        return self.states

    def end(self) -> None:
        """Release the workers; without failures all processes close their communicator together."""
        is_intact = not (self.membership.is_stale or self.membership.must_repeat)
        self.membership.release()
        if self._communicator is not None:
            with suppress(RankError):
                if is_intact:
                    self._communicator.close()
            self._communicator.abort()  # does nothing once it is closed
        self.membership.close()

    def await_workers(self, count: int, start_error: Callable[[], str]) -> None:
        """Wait until `count` workers have joined. start_error: why they cannot start; empty: none.

        Raises `ConfigError` on a start error, `RankError` after the time-out.
        """
        began = time.monotonic()
        while self.membership.admit() < count:
            if error := start_error():
                raise ConfigError(f"workers: {error}")
            if time.monotonic() - began > self.timeout_s:
                joined = f"{len(self.membership.members)} of {count} joined within {self.timeout_s:g} s"
                raise RankError(f"workers: only {joined}; check their logs")
            self.membership.poll()
            time.sleep(POLL_S)

    @property
    def workers(self) -> list[dict[str, Any]]:
        """Workers and their cells, for the run record."""
        records = []
        for member in self.membership.members:
            info = member.connection.peer_info
            record = {"name": member.name, "host": info.get("host"), "cores": info.get("cores")}
            record |= {"device": info.get("device"), "state": member.state}
            record |= {"cells": self._owners.count(member.rank), "cells_per_s": member.speed}
            records.append(record)
        return records

    def _run_generation(self) -> list[Answer]:
        """Run one generation on the workers, and note their speeds; return their results."""
        for member in self.membership.active:
            self.membership.send(member, "go")
        answers = self.membership.collect("done", generation=self.at + 1)
        self.at += 1
        for member in self.membership.active:
            cells = self._owners.count(member.rank)
            member.speed = cells / max(float(answers[member.name]["seconds"]), 1e-6)
        return list(answers.values())

    def _gather(self) -> None:
        """Receive the states of all cells at the newest boundary."""
        for member in self.membership.active:
            self.membership.send(member, "gather", boundary=self.at)
        assert self._communicator is not None
        try:
            gathered = self._communicator.gather([])
        except RankError:
            self.membership.raise_failure()
        assert gathered is not None
        states = [state for messages in gathered for state in unpack_cells(messages, self.like)]
        self.membership.collect("gathered", boundary=self.at)
        self.states = {state.number: state for state in states}
        self.states_at = self.at  # from here on the coordinator is one more source of recovery

    def _assign(self) -> None:
        """Start a new membership: assign cells to workers, from the newest common boundary."""
        self._membership_number += 1
        reported = self._stop_workers()  # first: only what a stopped worker reports can be relied on
        last_names = self._last_names()  # by the former ranks
        active = self._choose_active()
        self._owners = assign_cells(*self.shape, _speeds(active))
        saved = {member.name: reported[member.name] for member in active}
        if self.states_at is not None:
            saved["coordinator"] = {self.states_at: list(self.states)}
        self.at, sources = recovery_sources(saved, last_names)
        ranks = {member.name: member.rank for member in active} | {"coordinator": len(active)}
        self._connect(ranks, sources)
        self.membership.collect("ready", membership=self._membership_number)
        self.membership.is_stale = False  # only now: a failure before all are ready has to assign once more
        counts = ", ".join(str(self._owners.count(member.rank)) for member in active)
        self.membership.log(f"workers   {len(active)} with {counts} cells, from generation {self.at}")

    def _last_names(self) -> list[str]:
        """Return the name of each cell's last worker; empty if it has failed, and before the first membership."""
        rows, columns = self.shape
        if not self._owners:
            return [""] * (rows * columns)
        names = {member.rank: member.name for member in self.membership.members}
        return [names.get(owner, "") for owner in self._owners]

    def _choose_active(self) -> list[Member]:
        """Number the workers anew, and return those that train: at most one for each cell."""
        rows, columns = self.shape
        if not self.membership.members:
            raise RankError("workers: all have failed; run the same command again to resume")
        for rank, member in enumerate(self.membership.members):
            member.rank = rank if rank < rows * columns else -1  # spare
        return self.membership.active

    def _connect(self, ranks: Mapping[str, int], sources: Sequence[str | None]) -> None:
        """Connect the workers of a new membership, and send cells to their new workers."""
        source_ranks = [None if source is None else ranks[source] for source in sources]
        active = self.membership.active
        transfers = transfer_routes(self._owners, source_ranks)
        root = len(active)
        exchanges = exchange_routes(self._owners, self.topology)
        routes = [route for route in exchanges | transfers if root not in route]  # the root is a peer of all
        order = {
            "membership": self._membership_number,
            "size": root,
            "owners": self._owners,
            "sources": source_ranks,
            "generation": self.at,
            "places": [member.connection.peer_info.get("place") for member in active],
        }
        # all orders go out before this process connects: a worker and the root wait for each other
        for member in active:
            peers = sorted(receiver for sender, receiver in routes if sender == member.rank)
            self.membership.send(member, "join", rank=member.rank, peers=peers, **order)
        try:
            communicator = self._communicator = self.make_communicator(
                {"rank": root, "peers": [], **order}, self.membership.check_failed
            )
            transfer_cells(communicator, transfers, self.states, self.like, with_root=True)
        except RankError:
            self.membership.raise_failure()

    def _stop_workers(self) -> dict[str, dict[int, list[int]]]:
        """Stop the work in progress; returns each worker's saved cells by generation boundary."""
        if self._communicator is not None:  # first: a worker may wait for this process, and could not answer
            self._communicator.abort()
            self._communicator = None
        replies = self.membership.drop_all(self._membership_number)
        saved = {}
        for member in self.membership.members:
            cells_by_boundary = replies[member.name]["saved"]  # the keys of a JSON object are texts
            saved[member.name] = {int(boundary): cells for boundary, cells in cells_by_boundary.items()}
        return saved

    def _is_unbalanced(self) -> bool:
        """Whether another assignment would have been faster for some generations."""
        active = self.membership.active
        speeds = [member.speed for member in active if member.speed is not None]
        if len(active) < 2 or len(speeds) < len(active):
            return False
        is_slower = is_unbalanced(self._owners, *self.shape, speeds)
        self._num_unbalanced = self._num_unbalanced + 1 if is_slower else 0
        if self._num_unbalanced < _MIN_GENERATIONS:  # one slow generation is noise, and a new membership costs time
            return False
        self._num_unbalanced = 0
        return True


def _speeds(members: Sequence[Member]) -> list[float]:
    """Return speeds; a worker without one counts as a typical one, until its first generation corrects that."""
    known = [member.speed for member in members if member.speed is not None]
    return [member.speed or (median_high(known) if known else 1.0) for member in members]


def recovery_sources(saved: SavedCells, last_names: Sequence[str]) -> tuple[int, list[str | None]]:
    """Return the boundary from which to resume, and who has each cell's state; None: it has not begun.

    saved: saved cells by name and boundary. last_names: of the last worker of each cell. The boundary
    is the newest for which a state of every cell exists.
    """
    for boundary in sorted(set().union(*saved.values()), reverse=True):
        sources = [_source_at(saved, boundary, cell, name) for cell, name in enumerate(last_names)]
        if None not in sources:
            return boundary, sources
    return 0, [None] * len(last_names)


def _source_at(saved: SavedCells, boundary: int, cell: int, last_name: str) -> str | None:
    """Return who has a cell at a boundary, if possible its last worker (no transfer); None: no process."""
    names = [name for name, states in saved.items() if cell in states.get(boundary, ())]
    if last_name in names:
        return last_name
    return names[0] if names else None
