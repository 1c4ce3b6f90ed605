"""Construction of the communicators of a grid on workers, and of their store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from paragan.config import RunConfig
from paragan.core.errors import RankError
from paragan.extensions.grid.transports.communicator import Communicator, CommunicatorFactory
from paragan.extensions.grid.transports.gloo_communicator import GlooCommunicator

CONNECT_TIMEOUT_S = 60.0
_MAX_GENOME_BYTES = 1 << 34


def connect_store(host: str, port: int, timeout_s: float) -> dist.Store:
    """Connect to a store; `RankError` if the address has none."""
    try:
        patience = timedelta(seconds=min(timeout_s, CONNECT_TIMEOUT_S))
        return dist.TCPStore(host, port, is_master=False, timeout=patience)
    except RuntimeError as error:
        raise RankError(
            f"worker: cannot connect to the store of the run at {host}:{port} ({str(error)[:200]}); "
            "run the same command again to resume"
        ) from None


def communicator_factory(config: RunConfig, store: dist.Store) -> CommunicatorFactory:
    """Return the factory of communicators; the coordinator has the rank after the last worker's."""
    timeout_s = config.train.timeout_s
    host = config.coordinator_address[0]

    def join_links(order: Mapping[str, Any], stopped: Callable[[], bool]) -> Communicator:
        return GlooCommunicator(
            store=store,
            name=f"membership/{order['membership']}",
            rank=order["rank"],
            size=order["size"],
            peers=order["peers"],
            max_bytes=_MAX_GENOME_BYTES,
            timeout_s=timeout_s,
            stopped=stopped,
            coordinated=True,
            host=host if host.startswith("127.") else None,  # None: the address that others use
        )

    def join_mpi(order: Mapping[str, Any], stopped: Callable[[], bool]) -> Communicator:
        from paragan.extensions.grid.transports.mpi_communicator import MpiWorld  # initialises MPI

        return MpiWorld().join(
            f"membership/{order['membership']}",
            order["places"],
            order["peers"],
            coordinator=0,
            max_bytes=_MAX_GENOME_BYTES,
            timeout_s=timeout_s,
            stopped=stopped,
        )

    return join_mpi if config.transport == "mpi" else join_links
