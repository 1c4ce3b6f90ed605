"""Processes that somebody else has started to train one grid: rank 0 is its coordinator, and tells the others where.

What is told is JSON, once. Under torchrun it lies in the store of the ranks; under mpiexec `transports.mpi` carries it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paragan.core.dist import World
from paragan.core.errors import RankError


@dataclass
class ExternalWorkers:
    """tell: to all others, by rank 0. hear: what it told; raises when nothing comes in time. mpi: by whom started.

    has_called: whether rank 0 has told the others anything.
    """

    rank: int
    size: int
    broadcast_text: Callable[[str], None]
    receive_text: Callable[[], str]
    mpi: bool = False
    has_broadcast: bool = False

    def broadcast(self, values: Mapping[str, Any]) -> None:
        """The others to their work."""
        self.has_broadcast = True
        self.broadcast_text(json.dumps(values))

    def receive(self) -> dict[str, Any]:
        """What rank 0 said; of nothing but strings and numbers."""
        found = json.loads(self.receive_text())
        if not isinstance(found, dict):
            raise RankError(f"rank {self.rank}: rank 0 said something else than where its coordinator listens")
        return found


def from_world(world: World) -> ExternalWorkers:
    """Of the ranks that torchrun started."""
    store = world.store
    assert store is not None
    return ExternalWorkers(
        world.rank,
        world.size,
        broadcast_text=lambda text: store.set("company", text),
        receive_text=lambda: store.get("company").decode(),  # ends with the store's time-out
    )
