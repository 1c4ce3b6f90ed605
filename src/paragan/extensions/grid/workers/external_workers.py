"""Worker processes of a grid that another program started, such as torchrun or mpiexec.

Rank 0 is the coordinator and broadcasts its address once, as JSON: through the store of the ranks
under torchrun, by `MpiWorld` under mpiexec.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paragan.core.errors import RankError


@dataclass(kw_only=True)
class ExternalWorkers:
    """Externally started processes of one grid.

    broadcast_text: sends to all others, from rank 0. receive_text: returns what rank 0 sent; raises
    on a time-out. mpi: whether mpiexec started them. has_broadcast: whether rank 0 has sent.
    """

    rank: int
    size: int
    broadcast_text: Callable[[str], None]
    receive_text: Callable[[], str]
    mpi: bool = False
    has_broadcast: bool = False

    def broadcast(self, values: Mapping[str, Any]) -> None:
        """Send the address and token of the coordinator to all workers."""
        self.has_broadcast = True
        self.broadcast_text(json.dumps(values))

    def receive(self) -> dict[str, Any]:
        """Return the values that rank 0 sent: strings and numbers."""
        found = json.loads(self.receive_text())
        if not isinstance(found, dict):
            raise RankError(f"rank {self.rank}: rank 0 sent no address of its coordinator")
        return found
