"""`paragan bench table1`: the rows in turn, round after round, and the table of what they gave.

All rows of a group live at the same time and make a piece of their epoch each before any makes the next, so that a
machine that slows down slows all of them. Time is the processor's, at one thread per process.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from paragan.cli._table1_rows import PLAIN, Asked, Group, Measured, Row, Table
from paragan.cli._table1_run import RowError, Running
from paragan.cli._table1_told import write
from paragan.core.printable import printable

_QUIET = ("train.threads=1", "every.sample_kimg=0", "every.score_kimg=0")


def run(asked: Asked, out: Path) -> None:
    """Measure all, and write as far as it is after every group. Raises `ConfigError` for what no row could do."""
    tables, today = asked.tables(), date.today().isoformat()
    out.mkdir(parents=True, exist_ok=True)
    pace = Pace(sum(sum(_rounds(asked, t, g)) * t.cost * len(g.rows) for t in tables for g in t.groups))
    found: list[tuple[Table, list[Measured]]] = []
    for table in tables:
        found.append((table, []))
        for group in table.groups:
            found[-1][1].extend(measured(asked, table, group, pace))
            write(asked, found, out, today)
    print(printable("\n".join(map(str, write(asked, found, out, today, complete=True)))))


def measured(asked: Asked, table: Table, group: Group, pace: Pace | None = None) -> list[Measured]:
    """The rows of one group. One that fails tells why in its place; without the first there is nothing: `RowError`."""
    found = [Measured(row, group.batch * asked.ranks, n == 0) for n, row in enumerate(group.rows)]
    with tempfile.TemporaryDirectory(prefix="paragan-table1-") as folder:
        running = [_running(asked, table, group, row, Path(folder) / str(n)) for n, row in enumerate(group.rows)]
        try:
            for seat in running:
                seat.start()
            for seat, one in zip(running, found, strict=True):
                _try(one, seat.ready)
            pairs, count = list(zip(running, found, strict=True)), num_rounds(asked, table, group)
            for number, images in enumerate(_rounds(asked, table, group)):
                _round(pairs, number, images)
                if pace is not None:
                    what = f"{table.recipe}, batch {found[0].batch}, round {number + 1} of {count}"
                    pace.tell(what, images * table.cost * len(running))
            for seat, one in pairs:
                _try(one, partial(_closed, asked, seat, one))
        finally:
            for seat in running:
                seat.end()
    for one in found:
        one.ratios = [a / b for a, b in zip(one.seconds, found[0].seconds, strict=False)]
    return found


def num_rounds(asked: Asked, table: Table, group: Group) -> int:
    """Of all epochs: as many as asked for, but every row makes an update in each."""
    return asked.epochs * min(asked.rounds, table.images // (group.unit * asked.ranks))


def _rounds(asked: Asked, table: Table, group: Group) -> Iterator[int]:
    """Images of each round: together the epochs, without the rest on which not every row makes a whole update."""
    unit = group.unit * asked.ranks
    count, total = num_rounds(asked, table, group) // asked.epochs, table.images // unit
    for _ in range(asked.epochs):
        yield from (unit * (total * (n + 1) // count - total * n // count) for n in range(count))


def _running(asked: Asked, table: Table, group: Group, row: Row, folder: Path) -> Running:
    batch = group.batch * asked.ranks * row.parts
    kimg = table.images * asked.epochs / 1000
    each = [*PLAIN, f"parts={row.parts}", *row.words]
    sides = [f"{side}.{word}" for side in ("g", "d") for word in each]
    words = (f"train.batch={batch}", f"train.kimg={kimg:g}", *_QUIET, *sides, *table.words)
    return Running(row.name, table.recipe, words, asked.ranks if row.joined else 1, row.joined, folder)


def _round(pairs: Sequence[tuple[Running, Measured]], number: int, images: int) -> None:
    """One piece of every row; another one begins each time."""
    first = number % len(pairs)
    for seat, one in (*pairs[first:], *pairs[:first]):
        _try(one, partial(_piece, seat, one, images))


def _piece(seat: Running, one: Measured, images: int) -> None:
    answers = seat.train(images // (one.batch * one.row.parts))
    one.seconds.append(sum(answer["cpu_s"] for answer in answers))
    one.wall.append(max(answer["wall_s"] for answer in answers))
    one.pieces.append((images, {side: answers[0]["losses"][side] * one.row.parts * one.batch for side in ("d", "g")}))


def _closed(asked: Asked, seat: Running, one: Measured) -> None:
    """Scores and losses, once all rounds are done."""
    answer = seat.score()
    one.metrics = answer["metrics"]
    one.updates = tuple(answer["updates"][side] / asked.epochs for side in ("d", "g"))
    last = one.pieces[-(len(one.pieces) // asked.epochs) :]
    one.images = sum(images for images, _ in last)
    one.d_loss, one.g_loss = (sum(losses[side] for _, losses in last) / one.images for side in ("d", "g"))
    seat.end()


def _try(one: Measured, work: Callable[[], None]) -> None:
    """Unless it has failed before. Nothing can be told without the base."""
    if one.error is not None:
        return
    try:
        work()
    except RowError as error:
        if one.base:
            raise
        one.error = str(error).removeprefix(f"{one.row.name}: ")
        print(printable(error), file=sys.stderr, flush=True)


class Pace:
    """How far it is. total: of the work, in images of pix2pix."""

    def __init__(self, total: float) -> None:
        self.total, self.done, self.began = total, 0.0, time.monotonic()

    def tell(self, what: str, work: float) -> None:
        self.done += work
        took = time.monotonic() - self.began
        left = took / self.done * (self.total - self.done)
        print(f"{what}: {took / 60:.1f} min, about {max(left, 0.0) / 60:.0f} min to go", file=sys.stderr, flush=True)
