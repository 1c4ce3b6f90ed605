"""Worker: a process that trains some cells of a grid for a coordinator.

One thread receives orders, another trains. A worker saves the states of its cells at the last two
generation boundaries, and the copies of other cells received in the exchange. Every cell of a
failed worker thus exists on another one.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.cell_state import CellState
from paragan.coevolution.population import Population
from paragan.coevolution.workers.genome_exchange import (
    AsyncGenomeExchange,
    GenomeExchange,
    pack_cells,
    transfer_cells,
    transfer_routes,
)
from paragan.core.errors import ParaganError, RankError
from paragan.distributed.transports.communicator import Communicator, CommunicatorFactory
from paragan.distributed.transports.control import ControlConnection
from paragan.distributed.transports.heartbeat import WorkerState, WorkerStatus
from paragan.hardware import heap

_POLL_S = 0.1
_NUM_EDGES = 2  # boundaries with saved states; one more for each generation of age
_JOIN_TIMEOUT_S = 5.0

Order = Mapping[str, Any]


class CellTrainer(Protocol):
    """Factory of the cells of a worker."""

    def cell(self, number: int) -> Cell:
        """Make a cell at its initial state."""

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population:
        """Make a population of cells."""


class GenerationDropped(Exception):
    """Abort of the generation in progress by the coordinator."""


class Worker:
    """Worker of a grid.

    line: connection to the coordinator. trainer: makes cells. make_communicator: makes the
    communicator described by an order. status: reported by heartbeats. age: generations by which a
    neighbour's copy may be behind; 0: lock-step. timeout_s: of silence of the coordinator, and for
    closing at the end. device: as in `GenomeExchange`.
    """

    def __init__(
        self,
        line: ControlConnection,
        trainer: CellTrainer,
        make_communicator: CommunicatorFactory,
        say: Callable[[str], None],
        status: WorkerStatus,
        *,
        age: int = 0,
        timeout_s: float = 300.0,
        device: torch.device | None = None,
    ) -> None:
        self.line = line
        self.trainer = trainer
        self.make_communicator = make_communicator
        self.say = say
        self.age = age
        self.timeout_s = timeout_s
        self.status = status
        self.device = device
        self._cells: dict[int, Cell] = {}
        self._saved: dict[int, dict[int, CellState]] = {}
        self._population: Population | None = None
        self._exchange: GenomeExchange | None = None
        self._communicator: Communicator | None = None
        self._until = 0  # number of generations that may be finished
        self._has_ended = False
        self._num_drops = 0  # orders to abort received so far
        self._num_drops_of_order = 0  # orders to abort received before the order in progress
        self._orders: queue.Queue[tuple[int, Order] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="trains")

    def run(self) -> str:
        """Run until the coordinator ends the run (returns an empty text) or fails (the reason)."""
        self._thread.start()
        received_at = time.monotonic()
        try:
            while True:
                order = self.line.receive(_POLL_S)
                if order is None and self.line.disconnect_reason is not None:
                    return f"the connection to the coordinator is lost ({self.line.disconnect_reason})"
                if order is None and time.monotonic() - received_at > self.timeout_s:
                    return f"no message from the coordinator for {self.timeout_s:g} s"
                if order is None:
                    continue
                received_at = time.monotonic()
                if order["kind"] == "beat":
                    continue
                self._has_ended = order["kind"] == "end"
                self._num_drops += order["kind"] == "drop"
                self._orders.put((self._num_drops, order))
                if self._has_ended:
                    self._thread.join(self.timeout_s)
                    return ""
        finally:
            self._num_drops += 1
            self._orders.put(None)
            self._thread.join(_JOIN_TIMEOUT_S)

    def _work(self) -> None:
        """Execute orders, and between them the generations that are due (thread)."""
        actions = {"join": self._join, "go": self._go, "gather": self._gather, "drop": self._drop, "end": self._end}
        while True:
            population = self._population
            due = self._exchange is not None and population is not None and population.generation < self._until
            try:
                next_one = self._orders.get(block=not due)
            except queue.Empty:
                self._run_guarded(self._evolve)
                continue
            if next_one is None:
                return self._leave()
            self._num_drops_of_order, order = next_one
            self.status.progress += 1
            self._run_guarded(lambda order=order: actions[order["kind"]](order))  # type: ignore[misc]
            if order["kind"] == "end":
                return self._leave()

    def _run_guarded(self, action: Callable[[], None]) -> None:
        """Run an action; report its errors to the coordinator, which then orders what to do."""
        try:
            return action()
        except GenerationDropped:
            pass
        except RankError as error:
            if not self._stopped():
                self._send("lost", reason=str(error)[:300], worker=getattr(error, "worker", -1))
        except ParaganError as error:
            self._report_failure(str(error), error.exit_code)
        except Exception as error:
            self._report_failure(f"{type(error).__name__}: {error}", 1)
        self._exchange = None  # nothing is due until the next membership

    def _report_failure(self, reason: str, code: int) -> None:
        self.status.state = WorkerState.FAILED
        self._send("failed", reason=reason[:500], code=code)

    def _send(self, kind: str, **values: Any) -> None:
        try:
            self.line.send(kind, **values)
        except RankError as error:
            self.say(f"cannot send {kind!r} to the coordinator ({error})")

    def _join(self, order: Order) -> None:
        """Join a membership: receive the cells of this worker from their present owners."""
        self._leave()
        at = int(order["generation"])
        owners = order["owners"]
        communicator = self._communicator = self.make_communicator(order, self._stopped)
        held = {cell: self._saved[edge][cell] for cell, edge in order["edges"].get(str(communicator.rank), [])}
        routes = transfer_routes(owners, order["sources"])
        received = transfer_cells(communicator.exchange_with_root, communicator.rank, routes, held, self._like)
        mine = [number for number, owner in enumerate(owners) if owner == communicator.rank]
        for number in mine:
            source = order["sources"][number]
            if source is None or number not in self._cells:
                self._cells[number] = self.trainer.cell(number)
            if source is not None:
                self._cells[number].restore(received[number] if number in received else held[number])
        cells = [self._cells[number] for number in mine]
        population = self._population
        if population is None or list(population.cells) != cells:
            population = self._population = self.trainer.population(cells, self.say)
        population.generation = at
        population.check_stop = self._check_stop
        exchange = (communicator, owners, population.topology, self._like(), self._cell_states)
        population.exchange = self._exchange = (
            AsyncGenomeExchange(self.age, *exchange) if self.age else GenomeExchange(*exchange, self.device)
        )
        self._saved = {at: {**held, **{cell.number: cell.state() for cell in cells}}}
        self._until = at
        self._send("ready", membership=order["membership"])

    def _go(self, order: Order) -> None:
        """Set the generation up to which this worker may run."""
        self._until = int(order["until"])

    def _evolve(self) -> None:
        """Run one generation and report it."""
        population = self._population
        exchange = self._exchange
        assert population is not None and exchange is not None
        self.status.state = WorkerState.PROCESSING
        began = time.perf_counter()
        profile, scalars = population.evolve()
        at = population.generation
        states = {cell.number: cell.state() for cell in population.cells}
        for edge, copies in exchange.copies.items():
            self._saved.setdefault(edge, {}).update(copies)
        exchange.copies.clear()
        recent = {edge: saved for edge, saved in self._saved.items() if edge > at - _NUM_EDGES - self.age}
        self._saved = recent | {at: recent.get(at, {}) | states}
        seconds = time.perf_counter() - began
        self.status.state = WorkerState.FINISHED
        self._send(
            "done",
            generation=at,
            seconds=seconds - profile.wall_s["gather"],
            cells={str(number): {**state.record, "clock": list(state.clock)} for number, state in states.items()},
            numbers=_sum_scalars(scalars),
            profile={"wall_s": profile.wall_s, "cpu_s": profile.cpu_s},
        )
        heap.release_freed_memory()  # others may still be at work

    def _gather(self, order: Order) -> None:
        """Send the states of the cells at a boundary to the coordinator."""
        assert self._communicator is not None
        held = self._saved[int(order["edge"])]
        mine = [cell.number for cell in self._cell_states()]
        self._communicator.gather(pack_cells(mine, held))
        self._send("gathered", edge=order["edge"])

    def _drop(self, order: Order) -> None:
        """Stop the work in progress, and report the saved cells."""
        self._leave()
        self.status.state = WorkerState.INACTIVE
        held = {str(edge): sorted(states) for edge, states in self._saved.items()}
        self._send("dropped", held=held, membership=order["membership"])

    def _end(self, order: Order) -> None:
        """Close the communicator, together with the other processes."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None

    def _leave(self) -> None:
        self._exchange = None
        if self._communicator is not None:
            self._communicator.abort()
            self._communicator = None

    def _cell_states(self) -> list[CellState]:
        assert self._population is not None
        return [cell.state() for cell in self._population.cells]

    def _like(self) -> Any:
        """Return genomes with the grid's networks."""
        if not self._cells:
            self._cells[0] = self.trainer.cell(0)
        return next(iter(self._cells.values())).centre

    def _stopped(self) -> bool:
        return self._num_drops != self._num_drops_of_order

    def _check_stop(self) -> None:
        """Report a step, and raise to abort the generation. Called before every step."""
        self.status.progress += 1
        if self._stopped() or self._has_ended:
            raise GenerationDropped
        if self._exchange is not None:
            self._exchange.progress()


def _sum_scalars(cells: Mapping[int, Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """Sum and count each finite scalar over cells, by name."""
    sums: dict[str, list[float]] = {}
    for scalars in cells.values():
        for name, value in scalars.items():
            number = float(value)
            if math.isfinite(number):
                total = sums.setdefault(name, [0.0, 0])
                total[0] += number
                total[1] += 1
    return sums
