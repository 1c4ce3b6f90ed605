"""Worker: a process that trains some cells of a grid for a coordinator.

One thread receives orders, another trains. A worker saves the states of its cells at the last two
generation boundaries, and the copies of other cells received in the exchange. Every cell of a
failed worker thus exists on another one.
"""

import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from paragan.core.errors import RankError, outcome
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.cell_state import CellState
from paragan.extensions.grid.population import Population
from paragan.extensions.grid.transports.communicator import Communicator, CommunicatorFactory
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.transports.heartbeat import WorkerState, WorkerStatus
from paragan.extensions.grid.workers.genome_exchange import (
    GenomeExchange,
    pack_cells,
    transfer_cells,
    transfer_routes,
)
from paragan.hardware import heap

_POLL_S = 0.1  # of waits for orders, between which the connection is checked
_JOIN_TIMEOUT_S = 5.0  # of the training thread, after an order to drop its work

Order = Mapping[str, Any]


class GenerationDropped(Exception):
    """Abort of the generation in progress by the coordinator."""


@dataclass(kw_only=True)
class Worker:
    """Worker of a grid.

    connection: to the coordinator. make_cell: makes a cell at its initial state, by number.
    make_communicator: makes the communicator described by an order. status: reported by heartbeats.
    timeout_s: of silence of the coordinator, and for closing at the end. _cells: by number, those of earlier
    memberships, too. _saved: states by generation boundary and number of the cell, for recovery.
    """

    connection: ControlConnection
    make_cell: Callable[[int], Cell]
    make_population: Callable[[Sequence[Cell]], Population]
    make_communicator: CommunicatorFactory
    status: WorkerStatus
    timeout_s: float = 300.0
    _cells: dict[int, Cell] = field(default_factory=dict)
    _saved: dict[int, dict[int, CellState]] = field(default_factory=dict)
    _population: Population | None = None
    _exchange: GenomeExchange | None = None
    _communicator: Communicator | None = None
    _has_ended: bool = False
    _num_drops: int = 0  # orders to abort received so far
    _num_drops_of_order: int = 0  # orders to abort received before the order in progress
    _orders: queue.Queue[tuple[int, Order] | None] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, daemon=True, name="trains")

    def run(self) -> str:
        """Run until the coordinator ends the run (returns an empty text) or fails (the reason)."""
        self._thread.start()
        received_at = time.monotonic()
        try:
            while not self._has_ended:
                order = self.connection.receive(_POLL_S)
                if order is not None:
                    received_at = time.monotonic()
                    if order["kind"] != "beat":
                        self._has_ended = order["kind"] == "end"
                        # counted at once: the training thread compares it at every step
                        self._num_drops += order["kind"] == "drop"
                        self._orders.put((self._num_drops, order))
                elif self.connection.disconnect_reason is not None:
                    return f"the connection to the coordinator failed ({self.connection.disconnect_reason})"
                elif time.monotonic() - received_at > self.timeout_s:
                    return f"no message from the coordinator for {self.timeout_s:g} s"
            self._orders.put(None)
            self._thread.join(self.timeout_s)
            return ""
        finally:  # also after an error: to the training thread that is one more order to drop its work
            self._num_drops += 1
            self._orders.put(None)
            self._thread.join(_JOIN_TIMEOUT_S)

    def _work(self) -> None:
        """Execute orders (thread)."""
        while (numbered_order := self._orders.get()) is not None:
            self._num_drops_of_order, order = numbered_order
            self.status.progress += 1
            self._execute_guarded(order)
        self._leave()

    def _execute_guarded(self, order: Order) -> None:
        """Execute an order; report its errors to the coordinator, which then orders what to do."""
        try:
            return self._execute(order)
        except GenerationDropped:
            pass
        except RankError as error:
            if not self._stopped():  # else the coordinator knows, and this error follows from its order
                self._send("unreachable", reason=str(error)[:300])
        except Exception as error:
            code, reason = outcome(error)
            self.status.state = WorkerState.FAILED
            self._send("failed", reason=(reason or f"{type(error).__name__}: {error}")[:500], code=code)
        self._exchange = None  # trains no more until the next membership

    def _execute(self, order: Order) -> None:
        match order["kind"]:
            case "join":
                self._join(order)
            case "go" if self._exchange is not None:  # else it has failed since, which it has reported
                self._evolve()
            case "gather":
                self._gather(order["boundary"])
            case "drop":
                self._drop(order["membership"])
            case "end" if self._communicator is not None:
                self._communicator.close()  # together with the other processes

    def _send(self, kind: str, **values: Any) -> None:
        with suppress(RankError):  # `run` returns why the connection failed
            self.connection.send(kind, **values)

    def _join(self, order: Order) -> None:
        """Join a membership: receive the cells of this worker from the workers that have their states.

        The order has for each cell the rank that trains it (`owners`) and the one that has its state at the
        boundary `generation` (`sources`; None: the cell begins).
        """
        self._leave()
        boundary = order["generation"]
        owners = order["owners"]
        sources = order["sources"]
        communicator = self._communicator = self.make_communicator(order, self._stopped)
        rank = communicator.rank
        local = [number for number, owner in enumerate(owners) if owner == rank]
        for number in local:
            if sources[number] is None or number not in self._cells:
                self._cells[number] = self.make_cell(number)
        like = self._cells[local[0]].centre
        states = {number: self._saved[boundary][number] for number, source in enumerate(sources) if source == rank}
        states |= transfer_cells(communicator, transfer_routes(owners, sources), states, like, with_root=True)
        # also cells that stay here: a dropped generation has trained them half
        for number in local:
            if sources[number] is not None:
                self._cells[number].restore(states[number])
        cells = [self._cells[number] for number in local]
        population = self._population
        if population is None or list(population.cells) != cells:
            population = self._population = self.make_population(cells)
        population.generation = boundary
        population.check_stop = self._check_stop
        self._exchange = GenomeExchange(
            communicator=communicator, owners=owners, topology=population.topology, like=like
        )
        population.exchange = self._exchange
        self._saved = {boundary: states | {cell.number: cell.state() for cell in cells}}
        self._send("ready", membership=order["membership"])

    def _evolve(self) -> None:
        """Run one generation and report it."""
        population = self._population
        exchange = self._exchange
        assert population is not None and exchange is not None
        self.status.state = WorkerState.PROCESSING
        began = time.perf_counter()
        profile, scalars = population.evolve()
        boundary = population.generation
        states = {cell.number: cell.state() for cell in population.cells}
        # workers end a generation at different times: if one fails now, all return to the boundary before, where
        # the copies are its cells
        self._saved = {boundary - 1: self._saved[boundary - 1] | exchange.copies, boundary: states}
        seconds = time.perf_counter() - began
        self.status.state = WorkerState.FINISHED
        self._send(
            "done",
            generation=boundary,
            seconds=seconds - profile.wall_s["gather"],
            # as `RemotePopulation.evolve` reads them
            cells=[(number, state.record, state.clock, _finite(scalars[number])) for number, state in states.items()],
            profile=asdict(profile),
        )
        heap.release_freed_memory()  # others may still be at work

    def _gather(self, boundary: int) -> None:
        """Send the states of the cells at a boundary to the coordinator."""
        assert self._communicator is not None and self._population is not None
        local = [cell.number for cell in self._population.cells]
        self._communicator.gather(pack_cells(local, self._saved[boundary]))
        self._send("gathered", boundary=boundary)

    def _drop(self, membership: int) -> None:
        """Stop the work in progress, and report the saved cells."""
        self._leave()
        self.status.state = WorkerState.INACTIVE
        saved = {boundary: sorted(states) for boundary, states in self._saved.items()}
        self._send("dropped", saved=saved, membership=membership)

    def _leave(self) -> None:
        self._exchange = None
        if self._communicator is not None:
            self._communicator.abort()
            self._communicator = None

    def _stopped(self) -> bool:
        """Return whether an order to drop has come after the order in progress; later orders are not to be dropped."""
        return self._num_drops != self._num_drops_of_order

    def _check_stop(self) -> None:
        """Report a step, and raise to abort the generation. Called before every step."""
        self.status.progress += 1
        if self._stopped() or self._has_ended:
            raise GenerationDropped


def _finite(scalars: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the scalars that a message can contain."""
    values = {name: float(value) for name, value in scalars.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}
