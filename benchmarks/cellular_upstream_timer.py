"""CPU seconds by routine of the upstream-style cellular baseline, under the names of Perez et al. 2020."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GATHER = "gather"  # a neighbour's individuals, decoded into fresh networks
SERVE = "serve"  # the neighbours' side of a gather: encoding what is requested
DATA = "data loading"
EVALUATE = "fitness evaluation"
MUTATE = "mutate"
UPDATE = "update_genomes"
MIXTURE = "mixture"  # drawing, scoring and choosing the mixture's weights
OTHER = "selection, replacement, misc"  # also the logged distances and whatever no routine claims
ROUTINES = (GATHER, SERVE, UPDATE, MUTATE, EVALUATE, DATA, MIXTURE, OTHER)


class Ledger:
    """Books every moment of the outermost `routine` on exactly one routine, so that their sum is the total.

    clock: seconds; of the process or, where other threads work meanwhile, of this thread.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds = dict.fromkeys(ROUTINES, 0.0)
        self._clock, self._open, self._since = clock, list[str](), 0.0

    @contextmanager
    def routine(self, name: str) -> Iterator[None]:
        """What runs inside is on `name`'s account; an inner routine interrupts the outer one."""
        self._book()
        self._open.append(name)
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def _book(self) -> None:
        now = self._clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now
