"""Measurement of table 1: all rows of a group take turns, round after round.

The processes of all rows of a group run at the same time and each trains one round before any starts the next, so that
a machine that slows down slows all rows. Time is CPU time with one thread per process.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from benchmarks.progress import ProgressLog
from benchmarks.table1.processes import RowError, RowProcesses
from benchmarks.table1.report import write
from benchmarks.table1.rows import PLAIN, Group, Row, RowResult, Table, Table1Options
from paragan.core.printable import to_printable

_QUIET = ("train.threads=1", "every.sample_kimg=0", "every.score_kimg=0")

Pair = tuple[RowProcesses, RowResult]


def run(options: Table1Options, out: Path) -> None:
    """Measure all groups and write the files after each. Raises `ConfigError` where no row can be measured."""
    tables = options.tables()
    today = date.today().isoformat()
    out.mkdir(parents=True, exist_ok=True)
    progress = ProgressLog(sum(_work(options, table) for table in tables))
    results: list[tuple[Table, list[RowResult]]] = []
    for table in tables:
        results.append((table, []))
        for group in table.groups:
            results[-1][1].extend(measure_group(options, table, group, progress))
            write(options, results, out, today)
    paths = write(options, results, out, today, complete=True)
    print(to_printable("\n".join(map(str, paths))))


def measure_group(
    options: Table1Options, table: Table, group: Group, progress: ProgressLog | None = None
) -> list[RowResult]:
    """Results of the rows of one group. A row that fails has an `error`; if the base fails, `RowError` is raised."""
    results = [RowResult(row, group.batch * options.ranks, n == 0) for n, row in enumerate(group.rows)]
    with tempfile.TemporaryDirectory(prefix="paragan-table1-") as folder:
        rows = [row_processes(options, table, group, row, Path(folder) / str(n)) for n, row in enumerate(group.rows)]
        pairs = list(zip(rows, results, strict=True))
        try:
            for processes in rows:
                processes.start()
            for processes, result in pairs:
                _attempt(result, processes.wait_ready)
            count = num_rounds(options, table, group)
            for number, images in enumerate(round_sizes(options, table, group)):
                _run_round(pairs, number, images)
                if progress is not None:
                    label = f"{table.recipe}, batch {results[0].batch}, round {number + 1} of {count}"
                    progress.advance(label, images * table.cost * len(rows))
            for processes, result in pairs:
                _attempt(result, partial(_finish, options, processes, result))
        finally:
            for processes in rows:
                processes.end()
    for result in results:
        result.ratios = [a / b for a, b in zip(result.seconds, results[0].seconds, strict=False)]
    return results


def num_rounds(options: Table1Options, table: Table, group: Group) -> int:
    """Rounds of all epochs: as many as requested, but every row makes at least one update in each."""
    return options.epochs * min(options.rounds, table.images // (group.unit * options.ranks))


def round_sizes(options: Table1Options, table: Table, group: Group) -> Iterator[int]:
    """Images of each round. The end of an epoch that is too short for an update of every row is left out."""
    unit = group.unit * options.ranks
    count = num_rounds(options, table, group) // options.epochs
    total = table.images // unit
    for _ in range(options.epochs):
        yield from (unit * (total * (n + 1) // count - total * n // count) for n in range(count))


def row_processes(options: Table1Options, table: Table, group: Group, row: Row, folder: Path) -> RowProcesses:
    """The processes of a row with their settings, not yet started."""
    batch = group.batch * options.ranks * row.micro_batches
    kimg = table.images * options.epochs / 1000
    of_player = [*PLAIN, f"micro_batches={row.micro_batches}", *row.settings]
    of_players = [f"{side}.{setting}" for side in ("g", "d") for setting in of_player]
    settings = (f"train.batch={batch}", f"train.kimg={kimg:g}", *_QUIET, *of_players, *table.settings)
    ranks = options.ranks if row.distributed else 1
    return RowProcesses(row.name, table.recipe, settings, ranks, row.distributed, folder)


def _work(options: Table1Options, table: Table) -> float:
    """Work of a table in images of pix2pix."""
    images = (sum(round_sizes(options, table, group)) * len(group.rows) for group in table.groups)
    return table.cost * sum(images)


def _run_round(pairs: Sequence[Pair], number: int, images: int) -> None:
    """One round of every row; a different row is first each time."""
    first = number % len(pairs)
    for processes, result in (*pairs[first:], *pairs[:first]):
        _attempt(result, partial(_train, processes, result, images))


def _train(processes: RowProcesses, result: RowResult, images: int) -> None:
    """One round of one row."""
    batch = result.batch * result.row.micro_batches
    replies = processes.train(images // batch)
    result.seconds.append(sum(reply["cpu_s"] for reply in replies))
    result.wall.append(max(reply["wall_s"] for reply in replies))
    result.round_losses.append((images, {side: replies[0]["losses"][side] * batch for side in ("d", "g")}))


def _finish(options: Table1Options, processes: RowProcesses, result: RowResult) -> None:
    """Score the row after its last round, set its mean losses, and end its processes."""
    reply = processes.score()
    result.metrics = reply["metrics"]
    result.updates = tuple(reply["updates"][side] / options.epochs for side in ("d", "g"))
    last_epoch = result.round_losses[-(len(result.round_losses) // options.epochs) :]
    result.images = sum(images for images, _ in last_epoch)
    result.d_loss = sum(losses["d"] for _, losses in last_epoch) / result.images
    result.g_loss = sum(losses["g"] for _, losses in last_epoch) / result.images
    processes.end()


def _attempt(result: RowResult, work: Callable[[], None]) -> None:
    """Do the work unless the row has failed before. A failure of the base is raised."""
    if result.error is not None:
        return
    try:
        work()
    except RowError as error:
        if result.is_base:
            raise
        result.error = str(error).removeprefix(f"{result.row.name}: ")
        print(to_printable(error), file=sys.stderr, flush=True)
