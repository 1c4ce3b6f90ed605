"""Builds the coordinator of a grid on workers, and its workers, from a resolved config."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from paragan.build.communicators import CONNECT_TIMEOUT_S, communicator_factory, connect_store
from paragan.build.grid import GridFactory
from paragan.coevolution.cell import Cell
from paragan.coevolution.cell_state import Centre
from paragan.coevolution.evolution import Evolution
from paragan.coevolution.topology import Topology
from paragan.coevolution.workers.coordinator import Coordinator, StalenessLimit
from paragan.coevolution.workers.membership import Membership
from paragan.coevolution.workers.remote_population import RemotePopulation, initial_cells
from paragan.coevolution.workers.worker import Worker
from paragan.config import RunConfig, dump, loads
from paragan.core.command import program_command
from paragan.core.dist import serve_store
from paragan.core.errors import ConfigError, RankError
from paragan.core.files import create_subfolder
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.handshake import incompatibility, nccl_conflict, worker_info
from paragan.distributed.launch.local_workers import LocalWorkers
from paragan.distributed.transports.control import ControlConnection, Listener, connect
from paragan.distributed.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
from paragan.distributed.transports.signed_frames import TOKEN, TOKEN_FILE, new_token, save_token
from paragan.hardware import device as devices, peers


def evolution(
    config: RunConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    external_workers: ExternalWorkers | None = None,
) -> Evolution:
    """Trainer of a grid whose cells are on workers.

    external_workers: processes started by a launcher; without them local workers are started before
    the first generation.
    """
    assert config.grid is not None and config.workers is not None
    if config.workers > config.grid.num_cells:
        most = config.grid.num_cells
        raise ConfigError(
            f"workers: {config.workers} workers are too many for a grid of {most} cells; use at most {most}"
        )
    if config.transport == "nccl" and external_workers is None and peers.num_nccl_devices() < config.workers:
        num = peers.num_nccl_devices()
        problem = f"nccl needs an accelerator for each of {config.workers} workers, and this host has {num}"
        raise ConfigError(f"transport: {problem}; use gloo")
    factory = GridFactory.of(config, folder, say, stop=stop)
    first = factory.cell(0)
    local = factory.population([first], lambda text: None)
    cells = initial_cells(first.state(), config.grid.num_cells)
    server = _CoordinatorServer.open(config, folder, say, external_workers)
    population = RemotePopulation(
        local.seed,
        local.options,
        cast(Sequence[Cell], cells),
        local.topology,
        local.make_evaluator,
        local.executor,
        generator_features=local.generator_features,
        distance=local.distance,
        coordinator=server.make_coordinator(local.topology, first.centre),
        clock=first.gan.clock,
        begin=server.begin,
        end=server.end,
    )
    return factory.evolution(first, population, folder, say, stop)


@dataclass
class _CoordinatorServer:
    """Address of a coordinator, and its workers."""

    config: RunConfig
    folder: Path
    say: Callable[[str], None]
    token: str
    listener: Listener
    store: dist.Store
    welcome: Mapping[str, Any]
    local_workers: LocalWorkers | None
    external_workers: ExternalWorkers | None
    coordinator: Coordinator | None = None

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, say: Callable[[str], None], external_workers: ExternalWorkers | None
    ) -> _CoordinatorServer:
        host, port = config.coordinator_address
        token = os.environ.get(TOKEN) or new_token()
        listener = Listener(token, host, port)
        store = serve_store(host, 0, timedelta(seconds=config.train.timeout_s))
        welcome = {"config": dump(config), "folder": str(folder.resolve()), "store": store.port}
        local_workers = (
            LocalWorkers(listener.address, {TOKEN: token}, folder / "ranks") if external_workers is None else None
        )
        return cls(config, folder, say, token, listener, store, welcome, local_workers, external_workers)

    def make_coordinator(self, topology: Callable[[int], Topology], like: Centre) -> Coordinator:
        config = self.config
        grid = config.grid
        timeout_s = config.train.timeout_s
        assert grid is not None
        on_failure = (lambda about: None) if self.local_workers is None else self.local_workers.kill
        is_recoverable = config.transport != "mpi"  # mpiexec ends all processes when one is killed
        membership = Membership(self._accept, self.say, grid.heartbeat_s, timeout_s, on_failure, is_recoverable)
        limit = StalenessLimit(grid.age, -(-len(config.max_steps) // grid.batches))
        make_communicator = communicator_factory(config, self.store)
        self.coordinator = Coordinator(
            membership, grid.rows_columns, topology, make_communicator, like, limit, timeout_s
        )
        return self.coordinator

    def begin(self) -> None:
        """Start the local workers, or call the external ones, and wait for them."""
        config = self.config
        host, port = self.listener.address
        assert config.workers is not None and self.coordinator is not None
        save_token(create_subfolder(self.folder, "ranks") / "token", self.token)
        if self.external_workers is not None:
            self.external_workers.broadcast({"token": self.token, "host": host, "port": port})
        elif self.local_workers is not None:
            self.local_workers.start(config.workers)
        self.coordinator.await_workers(
            config.workers, lambda: "" if self.local_workers is None else self.local_workers.failure()
        )
        if config.transport != "mpi":
            token = shlex.quote(str(self.folder / "ranks" / "token"))
            self.say(f"workers   to add a worker, run  {TOKEN_FILE}={token} {program_command()} worker {host}:{port}")

    def end(self) -> None:
        """Release the workers."""
        if self.coordinator is not None:
            self.coordinator.end()
        self.listener.close()
        if self.local_workers is not None:
            self.local_workers.shutdown()
        (self.folder / "ranks" / "token").unlink(missing_ok=True)

    def _accept(self) -> ControlConnection | None:
        """Next compatible worker; others are refused with a reason."""
        while (line := self.listener.accept(0.0)) is not None:
            reason = incompatibility(line.peer_info, self.welcome["config"])
            if not reason and self.config.transport == "nccl":
                others = [] if self.coordinator is None else self.coordinator.membership.members
                reason = nccl_conflict(line.peer_info, [member.line.peer_info for member in others])
            if reason:
                self.say(f"workers   {line.peer_info.get('host', line.peer_address)} was refused: {reason}")
            with suppress(RankError):  # it has disconnected
                line.send("refused", reason=reason) if reason else line.send("welcome", **self.welcome)
                if not reason:
                    return line
            line.close()
        return None


def worker(
    token: str,
    host: str,
    port: int,
    say: Callable[[str], None],
    device: str = "auto",
    external_workers: ExternalWorkers | None = None,
    config: str = "",
) -> str:
    """Run a worker of the coordinator at `host:port` to the end of its run; why it ended early, or an empty string.

    device: see `hardware.device.device_from_option`. external_workers, config: the launcher's
    processes and config, if it started this one. `ConfigError` if the worker does not fit the run.
    """
    torch_device = devices.device_from_option(device)
    place = external_workers.rank if external_workers is not None and external_workers.mpi else None
    about = worker_info(str(torch_device), config or None, place, peers.accelerator_uuid(torch_device))
    line = connect(token, host, port, CONNECT_TIMEOUT_S, about)
    try:
        welcome = line.receive(CONNECT_TIMEOUT_S)
        if welcome is None:
            return f"no message from the coordinator at {host}:{port} ({line.disconnect_reason or 'silent'})"
        if welcome["kind"] == "refused":
            raise ConfigError(f"worker: refused by the coordinator at {host}:{port}: {welcome['reason']}")
        run = loads(welcome["config"], "the coordinator's config")
        assert run.grid is not None
        if run.transport == "mpi" and external_workers is None:
            raise ConfigError(f"worker: the run at {host}:{port} uses transport=mpi; start its workers with mpiexec")
        status = WorkerStatus()
        # heartbeats are sent while the data is read, too, which may take long
        with closing(PeriodicHeartbeat(line.send, run.grid.heartbeat_s, status)):
            store = connect_store(host, welcome["store"], run.train.timeout_s)
            return _build_worker(run, line, Path(welcome["folder"]), store, status, torch_device, say).run()
    finally:
        line.close()


def _build_worker(
    run: RunConfig,
    line: ControlConnection,
    folder: Path,
    store: dist.Store,
    status: WorkerStatus,
    device: torch.device,
    say: Callable[[str], None],
) -> Worker:
    """Make the worker of this process in a run that has accepted it."""
    assert run.grid is not None
    torch.set_num_threads(run.train.threads or torch.get_num_threads())
    factory = GridFactory.of(run, folder, say, device=device)
    nccl_device = device if run.transport == "nccl" else None
    make_communicator = communicator_factory(run, store, nccl_device)
    return Worker(
        line,
        factory,
        make_communicator,
        say,
        status,
        age=run.grid.age,
        timeout_s=run.train.timeout_s,
        device=nccl_device,
    )
