"""Options of reading ahead. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from paragan.core.option_types import Interval, Natural


@dataclass(frozen=True, kw_only=True)
class LoadingOptions:
    """How batches are read and decoded ahead of the training step. Nothing here changes a batch."""

    prefetch: Natural | Literal["auto"] | None = None
    """Batches that are read and decoded ahead of the training step; 0: none; auto: a controller
    changes this, `readers` and `threads` by the latency of storage; null: auto for remote data, one
    more than `threads` for other data that is decoded from files, 0 for data in memory and grids.
    """
    threads: Annotated[int, Interval(ge=1, le=256)] | None = None
    """Threads that decode batches ahead; null: one per CPU thread of the process, at most 4."""
    readers: Annotated[int, Interval(ge=0, le=256)] = 0
    """Threads that only read files ahead, for storage that is slow to respond; 0: `threads` read."""
