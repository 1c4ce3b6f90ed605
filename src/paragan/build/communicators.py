"""Builds the communicators of a grid on workers, and the store through which they connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from paragan.config import RunConfig
from paragan.core.errors import RankError
from paragan.distributed.transports.communicator import Communicator, CommunicatorFactory
from paragan.distributed.transports.gloo_communicator import GlooCommunicator
from paragan.distributed.transports.nccl_communicator import NcclCommunicator
from paragan.hardware import peers

CONNECT_TIMEOUT_S = 60.0
_MAX_GENOME_BYTES = 1 << 34  # per genome


def connect_store(host: str, port: int, timeout_s: float) -> dist.Store:
    """Connect to a store; `RankError` if there is none."""
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=min(timeout_s, CONNECT_TIMEOUT_S)))
    except RuntimeError as error:
        raise RankError(
            f"worker: no store at {host}:{port} ({str(error)[:200]}); run the same command again to resume"
        ) from None


def communicator_factory(
    config: RunConfig, store: dist.Store, nccl_device: torch.device | None = None
) -> CommunicatorFactory:
    """Factory of the communicators of memberships; the coordinator has the rank after the last worker's.

    nccl_device: from which a worker sends genomes; None: they are sent from the host.
    """
    if config.transport == "mpi":
        return partial(_join_mpi_communicator, config.train.timeout_s)
    kind: Callable[..., GlooCommunicator] = (
        GlooCommunicator
        if nccl_device is None
        else partial(NcclCommunicator, device=nccl_device, pair=peers.connect_pair)
    )
    return partial(_join_communicator, kind, store, config.coordinator_address[0], config.train.timeout_s)


def _join_communicator(
    kind: Callable[..., GlooCommunicator],
    store: dist.Store,
    host: str,
    timeout_s: float,
    order: Mapping[str, Any],
    stopped: Callable[[], bool],
) -> Communicator:
    """Join a gloo or NCCL communicator. gloo listens on the loopback or on this host's address for the coordinator."""
    return kind(
        store,
        f"membership/{order['membership']}",
        order["rank"],
        order["size"],
        order["peers"],
        most_bytes=_MAX_GENOME_BYTES,
        timeout_s=timeout_s,
        stopped=stopped,
        coordinated=True,
        host=host if host.startswith("127.") else None,
    )


def _join_mpi_communicator(timeout_s: float, order: Mapping[str, Any], stopped: Callable[[], bool]) -> Communicator:
    """Join an MPI communicator."""
    from paragan.distributed.transports.mpi_communicator import MpiWorld  # begins MPI

    return MpiWorld().join(
        f"membership/{order['membership']}",
        order["places"],
        order["peers"],
        grid=None if order["torus"] is None else tuple(order["torus"]),
        coordinator=0,
        most_bytes=_MAX_GENOME_BYTES,
        timeout_s=timeout_s,
        stopped=stopped,
    )
