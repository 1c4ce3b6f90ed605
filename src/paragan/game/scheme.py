"""What a trainer asks of the schemes and the data that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from paragan.core.protocols import Source
from paragan.core.types import Batch, Report
from paragan.game.gan import GAN


class Batches(Protocol):
    """An endless stream whose whole state is its position."""

    position: int
    source: Source

    @property
    def wait_s(self) -> float: ...

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...


class Scheme(Protocol):
    """The order of turns in one step (`schemes/`)."""

    def step(self, gan: GAN, batches: Iterator[Batch]) -> Report: ...

    def quiesce(self) -> None: ...  # end what is under way between steps: a look at the game follows, or a save

    def close(self) -> None: ...  # no step follows
