"""Budget of reader threads and bytes that the ranks of a host share."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paragan.core.files import open_lock_file

_ROW = struct.Struct("=qq?7x")


@dataclass(frozen=True)
class Claim:
    """What one rank uses. is_short: it needs more than it has."""

    threads: int
    num_bytes: int
    is_short: bool = False


@dataclass(frozen=True)
class HostBudget:
    """Reader threads and bytes of a host, with a claim per rank in a file; one rank needs no file.

    least: of every rank, also of one that has not claimed yet.
    """

    threads: int
    num_bytes: int
    least: Claim = Claim(1, 0)
    rank: int = 0
    num_ranks: int = 1
    path: Path | None = None

    def update(self, decide: Callable[[int, int], Claim]) -> None:
        """Claim what `decide` returns for the threads and bytes that this rank may use.

        Ranks claim one at a time; a call during that of another does nothing. A claim above these
        numbers (bytes that are not yet free) leaves less to the others.
        """
        with self._locked_rows() as rows:
            if rows is None:
                return
            others = [row for number, row in enumerate(rows) if number != self.rank]
            rows[self.rank] = decide(*available(self, others))

    @contextmanager
    def _locked_rows(self) -> Iterator[list[Claim] | None]:
        rows = [self.least] * self.num_ranks
        if self.path is None:
            yield rows
            return
        with open_lock_file(self.path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            size = _ROW.size * self.num_ranks
            content = os.pread(file.fileno(), size, 0)
            if len(content) == size:
                rows = [Claim(*values) for values in _ROW.iter_unpack(content)]
            yield rows
            packed = (_ROW.pack(row.threads, row.num_bytes, row.is_short) for row in rows)
            os.pwrite(file.fileno(), b"".join(packed), 0)


def available(budget: HostBudget, others: Sequence[Claim]) -> tuple[int, int]:
    """Return the threads and bytes that a rank may use next to the claims of the others.

    All that is free; its equal share at most while another rank has less than that and is short.
    """
    threads = budget.threads - sum(max(other.threads, budget.least.threads) for other in others)
    num_bytes = budget.num_bytes - sum(max(other.num_bytes, budget.least.num_bytes) for other in others)
    fair_threads = budget.threads // budget.num_ranks
    fair_bytes = budget.num_bytes // budget.num_ranks
    if any(other.is_short and other.threads < fair_threads for other in others):
        threads = min(threads, fair_threads)
    if any(other.is_short and other.num_bytes < fair_bytes for other in others):
        num_bytes = min(num_bytes, fair_bytes)
    return max(threads, budget.least.threads), max(num_bytes, budget.least.num_bytes)
