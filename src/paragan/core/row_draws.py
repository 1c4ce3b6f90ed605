"""Rows that the calls of networks are for now, so that layers draw by row of the global batch.

Numbers of a layer are a function of (seed, side, step, row, layer), as latents are: neither ranks nor
micro-batches change them. No generator is read, so that compiled, recorded, recomputed and stacked
calls draw the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paragan.core import rng
from paragan.core.types import Rows


@dataclass
class _Calls:
    """Calls of networks for the same rows; words: what they are for."""

    rows: Rows
    words: tuple[str, ...]
    num: int = 0


class _Here(threading.local):
    """Turn and rows of this thread. seeds: of the games whose rows a batch has, one after the other."""

    seeds: Sequence[int] = ()
    side: str = ""
    calls: _Calls | None = None


_here = _Here()


@contextmanager
def turn_draws(seeds: Sequence[int], side: str) -> Iterator[None]:
    """Have layers draw by row inside, where `rows_of_calls` says which rows."""
    before = _here.seeds, _here.side, _here.calls
    _here.seeds, _here.side, _here.calls = seeds, side, None
    try:
        yield
    finally:
        _here.seeds, _here.side, _here.calls = before


@contextmanager
def rows_of_calls(rows: Rows, *words: str) -> Iterator[None]:
    """State the rows of the networks' inputs inside; each call there has draws of its own."""
    before = _here.calls
    _here.calls = _Calls(rows, words)
    try:
        yield
    finally:
        _here.calls = before


def keys_of_call(num_rows: int, device: torch.device) -> Tensor | None:
    """Return a key for each row of the next call, int64 (num_rows,); None where its rows are unknown.

    An input may hold the rows several times, one copy after the other, as real and fake samples.
    """
    calls = _here.calls
    if not _here.seeds or calls is None:
        return None
    calls.num += 1
    rows = calls.rows
    copies = num_rows // max(1, rows.count)
    if copies * rows.count != num_rows:
        return None
    rows = replace(rows, count=rows.count // len(_here.seeds))
    words: tuple[str | int, ...] = (_here.side, rows.step, *calls.words, calls.num)
    return torch.cat(
        [rng.row_keys(rng.key(seed, *words, copy), rows, device) for copy in range(copies) for seed in _here.seeds]
        or [torch.empty(0, dtype=torch.int64, device=device)]
    )
