"""Worker of this process in a run on a grid, and the communicators of all its processes."""

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paragan.config import RunConfig, parse_recipe
from paragan.core.errors import ConfigError, RankError
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.transports.communicator import Communicator, CommunicatorFactory
from paragan.extensions.grid.transports.control import connect
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.transports.gloo_communicator import GlooCommunicator
from paragan.extensions.grid.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
from paragan.extensions.grid.workers.handshake import ExternalWorkers, worker_info
from paragan.extensions.grid.workers.worker import Worker
from paragan.hardware import device as devices
from paragan.hardware.deterministic import deterministic_kernels

_CONNECT_TIMEOUT_S = 60.0
_MAX_GENOME_BYTES = 1 << 34  # far above any genome: a damaged length must not allocate all memory


def join_coordinator(
    token: str,
    host: str,
    port: int,
    log: Callable[[str], None],
    device: str = "auto",
    external_workers: ExternalWorkers | None = None,
    config: str = "",
) -> str:
    """Run a worker of the coordinator at `host:port` until its run ends.

    Returns why it ended early, or an empty string. device: see
    `hardware.device.device_from_option`. external_workers, config: the launcher's processes and
    config, if it started this one. Raises `ConfigError` if the worker does not fit the run.
    """
    torch_device = devices.device_from_option(device)
    place = external_workers.rank if external_workers is not None and external_workers.mpi else None
    info = worker_info(str(torch_device), config or None, place)
    connection = connect(token, host, port, _CONNECT_TIMEOUT_S, info)
    try:
        welcome = connection.receive(_CONNECT_TIMEOUT_S)
        if welcome is None:
            reason = connection.disconnect_reason or "silent"
            return f"no message from the coordinator at {host}:{port} ({reason})"
        if welcome["kind"] == "refused":
            raise ConfigError(f"worker: refused by the coordinator at {host}:{port}: {welcome['reason']}")
        run_config = parse_recipe(welcome["config"], "the coordinator's config")
        assert run_config.grid is not None
        if run_config.transport == "mpi" and external_workers is None:
            raise ConfigError(f"worker: the run at {host}:{port} uses transport=mpi; start its workers with mpiexec")
        status = WorkerStatus()
        # Heartbeats start before the data is read, which may take long.
        with closing(PeriodicHeartbeat(connection.send, run_config.grid.heartbeat_s, status)):
            store = _connect_store(host, welcome["store"], run_config.train.timeout_s)
            with deterministic_kernels(run_config.train.deterministic):
                folder = Path(welcome["folder"])
                return _build_worker(run_config, connection, folder, store, status, torch_device, log).run()
    finally:
        connection.close()


def _build_worker(
    config: RunConfig,
    connection: ControlConnection,
    folder: Path,
    store: dist.Store,
    status: WorkerStatus,
    device: torch.device,
    log: Callable[[str], None],
) -> Worker:
    torch.set_num_threads(config.train.threads or torch.get_num_threads())
    factory = GridFactory(config, folder, log, device=device)
    return Worker(
        connection=connection,
        make_cell=factory.cell,
        make_population=partial(factory.population, log=log),
        make_communicator=communicator_factory(config, store),
        status=status,
        timeout_s=config.train.timeout_s,
    )


def communicator_factory(config: RunConfig, store: dist.Store) -> CommunicatorFactory:
    """Return what makes the communicator of a membership, from the order to join it (`Coordinator._connect`)."""
    host = config.coordinator_address[0]

    def join(order: Mapping[str, Any], stopped: Callable[[], bool]) -> Communicator:
        name = f"membership/{order['membership']}"
        if config.transport == "mpi":
            from paragan.extensions.grid.transports.mpi_communicator import MpiCommunicator  # initialises MPI

            return MpiCommunicator(
                name,
                workers=order["places"],
                peers=order["peers"],
                coordinator=0,  # its rank under mpiexec
                max_bytes=_MAX_GENOME_BYTES,
                timeout_s=config.train.timeout_s,
                stopped=stopped,
            )
        return GlooCommunicator(
            store=store,
            name=name,
            rank=order["rank"],
            size=order["size"],
            peers=order["peers"],
            max_bytes=_MAX_GENOME_BYTES,
            timeout_s=config.train.timeout_s,
            stopped=stopped,
            coordinated=True,
            # a run on this host alone stays on its loopback interface; None: the address that other hosts use
            host=host if host.startswith("127.") else None,
        )

    return join


def _connect_store(host: str, port: int, timeout_s: float) -> dist.Store:
    """Connect to a store; `RankError` if the address has none."""
    try:
        patience = timedelta(seconds=min(timeout_s, _CONNECT_TIMEOUT_S))
        return dist.TCPStore(host, port, is_master=False, timeout=patience)
    except RuntimeError as error:
        raise RankError(
            f"worker: cannot connect to the store of the run at {host}:{port} ({str(error)[:200]}); "
            "run the same command again to resume"
        ) from None
