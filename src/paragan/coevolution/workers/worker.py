"""A process that trains some cells of a grid, as its coordinator says: one thread answers, another one works.

A worker keeps how its own cells stood at the last two edges of generations, and the copies of others' that came with
the exchange: whatever worker is lost, its cells are somewhere else.
"""

from __future__ import annotations

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
from paragan.distributed.transports.communicator import Communicator
from paragan.distributed.transports.control import ControlConnection
from paragan.distributed.transports.heartbeat import WorkerState, WorkerStatus
from paragan.hardware import heap

_POLL_S = 0.1
_NUM_EDGES = 2  # that states are kept of, and one more for each generation of age
_FAREWELL_S = 5.0

Order = Mapping[str, Any]
CommunicatorFactory = Callable[[Order, Callable[[], bool]], Communicator]


class CellTrainer(Protocol):
    """What a worker needs to have cells."""

    def cell(self, number: int) -> Cell: ...

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population: ...


class GenerationDropped(Exception):
    """The coordinator has given up what was under way."""


class Worker:
    """line: to the coordinator. crew: builds cells. meet: makes the communicator that an order is about. status: what
    the heartbeats report.

    age: generations that a neighbour's copy may be behind; 0: lock-step. timeout_s: that the coordinator may be silent
    for, and until all have left at the end. device: as `GenomeExchange` has it.
    """

    def __init__(
        self,
        line: ControlConnection,
        crew: CellTrainer,
        meet: CommunicatorFactory,
        say: Callable[[str], None],
        status: WorkerStatus,
        *,
        age: int = 0,
        timeout_s: float = 300.0,
        device: torch.device | None = None,
    ) -> None:
        self.line, self.crew, self.meet, self.say, self.age, self.timeout_s = line, crew, meet, say, age, timeout_s
        self.status, self.device = status, device
        self._cells: dict[int, Cell] = {}
        self._past: dict[int, dict[int, CellState]] = {}
        self._population: Population | None = None
        self._exchange: GenomeExchange | None = None
        self._communicator: Communicator | None = None
        self._until, self._ended = 0, False  # generations that may be done by now; whether all is over
        self._drops, self._begun = 0, 0  # orders to drop: that have come, and that had when the present order did
        self._orders: queue.Queue[tuple[int, Order] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="trains")

    def run(self) -> str:
        """Until the coordinator says so, or is gone; why."""
        self._thread.start()
        heard = time.monotonic()
        try:
            while True:
                order = self.line.receive(_POLL_S)
                if order is None and self.line.disconnect_reason is not None:
                    return f"the coordinator is gone ({self.line.disconnect_reason})"
                if order is None and time.monotonic() - heard > self.timeout_s:
                    return f"the coordinator has said nothing for {self.timeout_s:g} s"
                if order is None:
                    continue
                heard = time.monotonic()
                if order["kind"] == "beat":
                    continue
                self._ended = order["kind"] == "end"
                self._drops += order["kind"] == "drop"
                self._orders.put((self._drops, order))
                if self._ended:
                    self._thread.join(self.timeout_s)
                    return ""
        finally:
            self._drops += 1
            self._orders.put(None)
            self._thread.join(_FAREWELL_S)

    def _work(self) -> None:
        """In a thread of its own: orders as they come, and between them the generations that are due."""
        acts = {"join": self._join, "go": self._go, "gather": self._gather, "drop": self._dropped, "end": self._end}
        while True:
            population = self._population
            due = self._exchange is not None and population is not None and population.generation < self._until
            try:
                next_one = self._orders.get(block=not due)
            except queue.Empty:
                self._guarded(self._evolve)
                continue
            if next_one is None:
                return self._leave()
            self._begun, order = next_one
            self.status.record_progress()
            self._guarded(lambda order=order: acts[order["kind"]](order))  # type: ignore[misc]
            if order["kind"] == "end":
                return self._leave()

    def _guarded(self, act: Callable[[], None]) -> None:
        """What goes wrong is told to the coordinator, and what has to be dropped waits for the order to do so."""
        try:
            return act()
        except GenerationDropped:
            pass
        except RankError as error:
            if not self._stopped():
                self._say("lost", reason=str(error)[:300], worker=getattr(error, "worker", -1))
        except ParaganError as error:
            self._failed(str(error), error.exit_code)
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}", 1)
        self._exchange = None  # nothing is due until there is another membership

    def _failed(self, reason: str, code: int) -> None:
        self.status.set_state(WorkerState.FAILED)
        self._say("failed", reason=reason[:500], code=code)

    def _say(self, kind: str, **values: Any) -> None:
        try:
            self.line.send(kind, **values)
        except RankError as error:
            self.say(f"not told to the coordinator: {kind} ({error})")

    def _join(self, order: Order) -> None:
        """Take part in a membership: the cells that are this worker's now come from whoever has them."""
        self._leave()
        at, owners = int(order["generation"]), order["owners"]
        communicator = self._communicator = self.meet(order, self._stopped)
        held = {cell: self._past[edge][cell] for cell, edge in order["edges"].get(str(communicator.rank), [])}
        ways = transfer_routes(owners, order["sources"])
        came = transfer_cells(communicator.exchange_with_root, communicator.rank, ways, held, self._like)
        mine = [number for number, owner in enumerate(owners) if owner == communicator.rank]
        for number in mine:
            source = order["sources"][number]
            if source is None or number not in self._cells:
                self._cells[number] = self.crew.cell(number)
            if source is not None:
                self._cells[number].restore(came[number] if number in came else held[number])
        cells = [self._cells[number] for number in mine]
        population = self._population
        if population is None or list(population.cells) != cells:
            population = self._population = self.crew.population(cells, self.say)
        population.generation, population.stop = at, self._stop
        exchange = (communicator, owners, population.topology, self._like(), self._standings)
        population.exchange = self._exchange = (
            AsyncGenomeExchange(self.age, *exchange) if self.age else GenomeExchange(*exchange, self.device)
        )
        self._past = {at: {**held, **{cell.number: cell.state() for cell in cells}}}
        self._until = at
        self._say("ready", membership=order["membership"])

    def _go(self, order: Order) -> None:
        """More generations may be done."""
        self._until = int(order["until"])

    def _evolve(self) -> None:
        """One generation."""
        population, exchange = self._population, self._exchange
        assert population is not None and exchange is not None
        self.status.set_state(WorkerState.PROCESSING)
        began = time.perf_counter()
        profile, told = population.evolve()
        at, states = population.generation, {cell.number: cell.state() for cell in population.cells}
        for edge, copies in exchange.copies.items():
            self._past.setdefault(edge, {}).update(copies)
        exchange.copies.clear()
        kept = {edge: held for edge, held in self._past.items() if edge > at - _NUM_EDGES - self.age}
        self._past = kept | {at: kept.get(at, {}) | states}
        seconds = time.perf_counter() - began
        self.status.set_generation(at, seconds)
        self.status.set_state(WorkerState.FINISHED)
        self._say(
            "done",
            generation=at,
            seconds=seconds - profile.wall_s["gather"],
            cells={str(number): {**one.record, "clock": list(one.clock)} for number, one in states.items()},
            numbers=_sum_scalars(told),
            profile={"wall_s": profile.wall_s, "cpu_s": profile.cpu_s},
        )
        heap.release_freed_memory()  # others may still be at work

    def _gather(self, order: Order) -> None:
        """To the coordinator, all there is to know of the cells here at that edge."""
        assert self._communicator is not None
        held = self._past[int(order["edge"])]
        mine = [cell.number for cell in self._standings()]
        self._communicator.gather(pack_cells(mine, held))
        self._say("gathered", edge=order["edge"])

    def _dropped(self, order: Order) -> None:
        self._leave()
        self.status.set_state(WorkerState.INACTIVE)
        held = {str(edge): sorted(states) for edge, states in self._past.items()}
        self._say("dropped", held=held, membership=order["membership"])

    def _end(self, order: Order) -> None:
        """Leave together."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None

    def _leave(self) -> None:
        self._exchange = None
        if self._communicator is not None:
            self._communicator.abort()
            self._communicator = None

    def _standings(self) -> list[CellState]:
        assert self._population is not None
        return [cell.state() for cell in self._population.cells]

    def _like(self) -> Any:
        """Genomes of the kind that this grid has."""
        if not self._cells:
            self._cells[0] = self.crew.cell(0)
        return next(iter(self._cells.values())).centre

    def _stopped(self) -> bool:
        return self._drops != self._begun

    def _stop(self) -> None:
        """Called before every step."""
        self.status.record_progress()
        if self._stopped() or self._ended:
            raise GenerationDropped
        if self._exchange is not None:
            self._exchange.progress()


def _sum_scalars(told: Mapping[int, Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """Of the numbers of all cells, by name: their sum, and how many there are. What is not finite is left out."""
    found: dict[str, list[float]] = {}
    for numbers in told.values():
        for name, value in numbers.items():
            one = float(value)
            if one - one == 0:
                total = found.setdefault(name, [0.0, 0])
                total[0], total[1] = total[0] + one, total[1] + 1
    return found
