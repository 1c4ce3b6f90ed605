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

from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.halo import Halo, moved, moves
from paragan.coevolution.population import Population
from paragan.coevolution.standing import Standing
from paragan.core.errors import ParaganError, RankError
from paragan.transports._communicator import Communicator
from paragan.transports.control import Line
from paragan.transports.heartbeat import Beats, State, Status

_LOOK_S = 0.1
_EDGES = 2  # that standings are kept of

Order = Mapping[str, Any]
Meet = Callable[[Order, Callable[[], bool]], Communicator]


class Crew(Protocol):
    """What a worker needs to have cells."""

    def cell(self, number: int) -> Cell: ...

    def population(self, cells: Sequence[Cell], say: Callable[[str], None]) -> Population: ...


class Dropped(Exception):
    """The coordinator has given up what was under way."""


class Worker:
    """line: to the coordinator. crew: builds cells. meet: makes the communicator that an order is about."""

    def __init__(self, line: Line, crew: Crew, meet: Meet, beat_s: float, say: Callable[[str], None]) -> None:
        self.line, self.crew, self.meet, self.say = line, crew, meet, say
        self.status = Status()
        self._beats = Beats(line, beat_s, self.status)
        self._cells: dict[int, Cell] = {}
        self._past: dict[int, dict[int, Standing]] = {}
        self._population: Population | None = None
        self._communicator: Communicator | None = None
        self._drops, self._begun = 0, 0  # orders to drop: that have come, and that had when the present order did
        self._orders: queue.Queue[tuple[int, Order] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True, name="trains")

    def run(self) -> str:
        """Until the coordinator says so, or is gone; why."""
        self._thread.start()
        try:
            while True:
                order = self.line.receive(_LOOK_S)
                if order is None and self.line.lost is not None:
                    return f"the coordinator is gone ({self.line.lost})"
                if order is None:
                    continue
                if order["kind"] == "end":
                    return ""
                self._drops += order["kind"] == "drop"
                self._orders.put((self._drops, order))
        finally:
            self._drops += 1
            self._orders.put(None)
            self._thread.join(5.0)
            self._beats.close(1.0)

    def _work(self) -> None:
        """In a thread of its own, one order after another."""
        acts = {"join": self._join, "go": self._go, "gather": self._gather, "drop": self._dropped}
        while (next_one := self._orders.get()) is not None:
            self._begun, order = next_one
            try:
                acts[order["kind"]](order)
            except Dropped:
                continue  # the order to drop follows
            except RankError as error:
                if not self._stopped():
                    self._say("lost", reason=str(error)[:300], worker=getattr(error, "worker", -1))
            except ParaganError as error:
                self._say("failed", reason=str(error)[:500], code=error.exit_code)
            except Exception as error:
                self._say("failed", reason=f"{type(error).__name__}: {error}"[:500], code=1)
        self._leave()

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
        rank = communicator.rank
        held = self._past.get(at, {})
        came = moved(communicator, moves(owners, order["sources"]), held, self._like)
        mine = [number for number, owner in enumerate(owners) if owner == rank]
        for number in mine:
            if number not in self._cells:
                self._cells[number] = self.crew.cell(number)
            if order["sources"][number] is not None:
                self._cells[number].stand(came[number] if number in came else held[number])
        cells = [self._cells[number] for number in mine]
        if self._population is None or [cell.number for cell in self._population.cells] != mine:
            self._population = self.crew.population(cells, self.say)
        self._population.generation, self._population.stop = at, self._stop
        self._population.exchange = Halo(communicator, owners, self._population.topology, self._like(), self._standings)
        self._past = {at: {**held, **{cell.number: cell.standing() for cell in cells}}}
        self.status.become(State.PROCESSING) if self.status()["state"] == "inactive" else None
        self._say("ready", membership=order["membership"])

    def _go(self, order: Order) -> None:
        """One generation."""
        population = self._population
        assert population is not None and isinstance(population.exchange, Halo)
        began = time.perf_counter()
        profile, told = population.evolve()
        at, standings = population.generation, {cell.number: cell.standing() for cell in population.cells}
        self._past.setdefault(at - 1, {}).update(population.exchange.copies)
        self._past = {edge: held for edge, held in self._past.items() if edge > at - _EDGES} | {at: standings}
        seconds = time.perf_counter() - began
        self.status.reach(at, seconds)
        self._say(
            "done",
            generation=at,
            seconds=seconds - profile.wall_s["gather"],
            cells={str(number): {**one.told, "clock": list(one.clock)} for number, one in standings.items()},
            numbers=_sums(told),
            profile={"wall_s": profile.wall_s, "cpu_s": profile.cpu_s},
        )

    def _gather(self, order: Order) -> None:
        """To the coordinator, all there is to know of the cells here."""
        assert self._communicator is not None
        self._communicator.gather([part for standing in self._standings() for part in standing.packed()])
        self._say("gathered")

    def _dropped(self, order: Order) -> None:
        self._leave()
        held = {str(edge): sorted(standings) for edge, standings in self._past.items()}
        self._say("dropped", held=held, membership=order["membership"])

    def _leave(self) -> None:
        if self._communicator is not None:
            self._communicator.drop()
            self._communicator = None

    def _standings(self) -> list[Standing]:
        assert self._population is not None
        return [cell.standing() for cell in self._population.cells]

    def _like(self) -> Any:
        """Genomes of the kind that this grid has."""
        if not self._cells:
            self._cells[0] = self.crew.cell(0)
        return next(iter(self._cells.values())).centre

    def _stopped(self) -> bool:
        return self._drops != self._begun

    def _stop(self) -> None:
        """Called before every step."""
        if self._stopped():
            raise Dropped


def _sums(told: Mapping[int, Mapping[str, Tensor]]) -> dict[str, list[float]]:
    """Of the numbers of all cells, by name: their sum, and how many there are. What is not finite is left out."""
    found: dict[str, list[float]] = {}
    for numbers in told.values():
        for name, value in numbers.items():
            one = float(value)
            if one - one == 0:
                total = found.setdefault(name, [0.0, 0])
                total[0], total[1] = total[0] + one, total[1] + 1
    return found
