"""Rows that the calls of networks are for now, so that layers draw by row of the global batch.

Numbers of a layer are a function of (seed, side, step, row, layer), as latents are: neither ranks nor micro-batches
change them. `CalledNetwork` takes keys once per call of a network and hands them to its layers, which add their number:
no generator is read, so that compiled, recorded, recomputed and stacked calls draw the same.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.types import Rows


class _ThreadDraws(threading.local):
    """Turn and rows of a thread: G and D may train in two of one process, each with rows of its own.

    seeds: of the games whose rows a batch has, one after the other. words: what the calls for these rows are for.
    num_calls: so far.
    """

    seeds: Sequence[int] = ()
    side = ""
    rows: Rows | None = None
    words: tuple[str, ...] = ()
    num_calls = 0


_current = _ThreadDraws()


def turn_draws(seeds: Sequence[int], side: str) -> AbstractContextManager[None]:
    """Have layers draw by row inside, where `rows_of_calls` says which rows."""
    return _set(seeds=seeds, side=side, rows=None)


def rows_of_calls(rows: Rows, *words: str) -> AbstractContextManager[None]:
    """State the rows of the networks' inputs inside; each call there has draws of its own."""
    return _set(rows=rows, words=words, num_calls=0)


@contextmanager
def _set(**values: object) -> Iterator[None]:
    before = {name: getattr(_current, name) for name in values}
    vars(_current).update(values)
    try:
        yield
    finally:
        vars(_current).update(before)


def keys_of_call(num_rows: int, device: torch.device) -> Tensor | None:
    """Return a key for each row of the next call, int64 (num_rows,); None where its rows are unknown: torch draws.

    An input may hold the rows several times, one copy after the other, as real and fake samples.
    """
    rows = _current.rows
    if not _current.seeds or rows is None:
        return None
    # Numbered within the turn: a counter of the network's life would go another way after a resume.
    _current.num_calls += 1
    copies = num_rows // max(1, rows.count)
    if copies * rows.count != num_rows:
        return None
    # Games that are stacked: the count is of all of them, but each draws for its own rows as it does alone.
    rows = replace(rows, count=rows.count // len(_current.seeds))
    words: tuple[str | int, ...] = (_current.side, rows.step, *_current.words, _current.num_calls)
    # Copies outside, games inside: the order of rows in `cat(real, fake)` of a stack.
    seeds = [rng.key(seed, *words, copy) for copy in range(copies) for seed in _current.seeds]
    keys = [rng.row_keys(seed, rows, device) for seed in seeds]
    return torch.cat(keys) if keys else torch.empty(0, dtype=torch.int64, device=device)
