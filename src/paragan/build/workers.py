"""From a resolved config with a grid and workers to the run of its coordinator, and to a worker's part of it."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from paragan.build.grid import GridFactory
from paragan.coevolution.cell import Cell
from paragan.coevolution.cell_state import Centre
from paragan.coevolution.evolution import Evolution
from paragan.coevolution.topology import Topology
from paragan.coevolution.workers.coordinator import Coordinator, StalenessLimit
from paragan.coevolution.workers.membership import Membership
from paragan.coevolution.workers.remote_population import RemotePopulation, initial_cells
from paragan.coevolution.workers.worker import CommunicatorFactory, Worker
from paragan.config import RunConfig, dump, loads
from paragan.core.command import program_command
from paragan.core.errors import ConfigError, RankError
from paragan.core.files import create_subfolder
from paragan.distributed.launch.external_workers import ExternalWorkers
from paragan.distributed.launch.handshake import incompatibility, nccl_conflict, worker_info
from paragan.distributed.launch.local_workers import LocalWorkers
from paragan.distributed.transports.communicator import Communicator
from paragan.distributed.transports.control import ControlConnection, Listener, connect
from paragan.distributed.transports.gloo_communicator import GlooCommunicator
from paragan.distributed.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
from paragan.distributed.transports.nccl_communicator import NcclCommunicator
from paragan.distributed.transports.signed_frames import TOKEN, TOKEN_FILE, new_token, save_token
from paragan.hardware import device as devices, peers

_MAX_GENOME_BYTES = 1 << 34  # of a genome


def evolution(
    config: RunConfig,
    folder: Path,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    company: ExternalWorkers | None = None,
) -> Evolution:
    """The run of a grid whose cells are on workers. company: processes that wait to be them; without it the workers are
    started when the first generation is due.
    """
    assert config.grid is not None and config.workers is not None
    if config.workers > config.grid.num_cells:
        most = config.grid.num_cells
        raise ConfigError(f"workers: found {config.workers} for a grid of {most} cells, expected at most {most}")
    if config.transport == "nccl" and company is None and peers.num_nccl_devices() < config.workers:
        found = f"nccl for {config.workers} workers on a host with {peers.num_nccl_devices()} accelerators for it"
        raise ConfigError(f"transport: found {found}, expected one for each; use gloo")
    factory = GridFactory.of(config, folder, say, stop=stop)
    first = factory.cell(0)
    plain, absent = factory.population([first], lambda text: None), initial_cells(first.state(), config.grid.num_cells)
    server = _CoordinatorServer.open(config, folder, say, company)
    population = RemotePopulation(
        plain.seed,
        plain.options,
        cast(Sequence[Cell], absent),
        plain.topology,
        plain.make_evaluator,
        plain.executor,
        generator_features=plain.generator_features,
        distance=plain.distance,
        coordinator=server.coordinator(plain.topology, first.centre),
        clock=first.gan.clock,
        begin=server.begin,
        end=server.end,
    )
    return factory.evolution(first, population, folder, say, stop)


@dataclass
class _CoordinatorServer:
    """Where a coordinator listens, and the workers that it has."""

    config: RunConfig
    folder: Path
    say: Callable[[str], None]
    token: str
    listener: Listener
    store: dist.Store
    welcome: Mapping[str, Any]
    crew: LocalWorkers | None
    company: ExternalWorkers | None
    found: Coordinator | None = None

    @classmethod
    def open(
        cls, config: RunConfig, folder: Path, say: Callable[[str], None], company: ExternalWorkers | None
    ) -> _CoordinatorServer:
        (host, port), token = config.coordinator_address, os.environ.get(TOKEN) or new_token()
        listener = Listener(token, host, port)
        store = _open_store(host, config.train.timeout_s)
        welcome = {"config": dump(config), "folder": str(folder.resolve()), "store": store.port}
        crew = LocalWorkers(listener.address, {TOKEN: token}, folder / "ranks") if company is None else None
        return cls(config, folder, say, token, listener, store, welcome, crew, company)

    def coordinator(self, topology: Callable[[int], Topology], like: Centre) -> Coordinator:
        config, grid, timeout_s = self.config, self.config.grid, self.config.train.timeout_s
        assert grid is not None
        gone = (lambda about: None) if self.crew is None else self.crew.kill
        is_recoverable = config.transport != "mpi"  # mpiexec ends all when one is killed
        membership = Membership(self._accept, self.say, grid.heartbeat_s, timeout_s, gone, is_recoverable)
        last = -(-len(config.max_steps) // grid.batches)
        meet = _communicator_factory(config, self.store)
        self.found = Coordinator(
            membership, grid.rows_columns, topology, meet, like, StalenessLimit(grid.age, last), timeout_s
        )
        return self.found

    def begin(self) -> None:
        """Start the workers, or call them, and wait for them."""
        config, (host, port) = self.config, self.listener.address
        assert config.workers is not None and self.found is not None
        save_token(create_subfolder(self.folder, "ranks") / "token", self.token)
        if self.company is not None:
            self.company.broadcast({"token": self.token, "host": host, "port": port})
        elif self.crew is not None:
            self.crew.start(config.workers)
        self.found.await_workers(config.workers, lambda: "" if self.crew is None else self.crew.failure())
        if config.transport != "mpi":
            token = shlex.quote(str(self.folder / "ranks" / "token"))
            self.say(f"workers   one more joins with  {TOKEN_FILE}={token} {program_command()} worker {host}:{port}")

    def end(self) -> None:
        """Send them home."""
        if self.found is not None:
            self.found.end()
        self.listener.close()
        if self.crew is not None:
            self.crew.shutdown()
        (self.folder / "ranks" / "token").unlink(missing_ok=True)

    def _accept(self) -> ControlConnection | None:
        """The next worker that fits; one that does not is refused with the reason."""
        while (line := self.listener.accept(0.0)) is not None:
            why = incompatibility(line.peer_info, self.welcome["config"])
            if not why and self.config.transport == "nccl":
                others = [] if self.found is None else self.found.membership.members
                why = nccl_conflict(line.peer_info, [member.line.peer_info for member in others])
            if why:
                self.say(f"workers   {line.peer_info.get('host', line.peer_address)} was refused: {why}")
            with suppress(RankError):  # it has left already
                line.send("refused", reason=why) if why else line.send("welcome", **self.welcome)
                if not why:
                    return line
            line.close()
        return None


def worker(
    token: str,
    host: str,
    port: int,
    say: Callable[[str], None],
    device: str = "auto",
    company: ExternalWorkers | None = None,
    config: str = "",
) -> str:
    """Take part in the run whose coordinator listens there, to its end; why it ended before, if it did.

    device: see `hardware.device.device_from_option`. company: the processes among which this one was started, with
    this config. `ConfigError` where the two do not fit.
    """
    on = devices.device_from_option(device)
    place = company.rank if company is not None and company.mpi else None
    about = worker_info(str(on), config or None, place, peers.accelerator_uuid(on))
    line = connect(token, host, port, _CONNECT_TIMEOUT_S, about)
    try:
        welcome = line.receive(_CONNECT_TIMEOUT_S)
        if welcome is None:
            return f"the coordinator at {host}:{port} said nothing ({line.disconnect_reason or 'silent'})"
        if welcome["kind"] == "refused":
            raise ConfigError(f"worker: the coordinator at {host}:{port} refused this one: {welcome['reason']}")
        run = loads(welcome["config"], "the coordinator's config")
        assert run.grid is not None
        if run.transport == "mpi" and company is None:
            raise ConfigError(f"worker: found transport=mpi at {host}:{port}: mpiexec alone starts that run's workers")
        status = WorkerStatus()
        with closing(
            PeriodicHeartbeat(line, run.grid.heartbeat_s, status)
        ):  # already while the data is read, which may take long
            store = _connect_store(host, welcome["store"], run.train.timeout_s)
            return _build_worker(run, line, Path(welcome["folder"]), store, status, on, say).run()
    finally:
        line.close()


_CONNECT_TIMEOUT_S = 60.0


def _build_worker(
    run: RunConfig,
    line: ControlConnection,
    folder: Path,
    store: dist.Store,
    status: WorkerStatus,
    device: torch.device,
    say: Callable[[str], None],
) -> Worker:
    """The worker of this process in a run that has accepted it."""
    assert run.grid is not None
    torch.set_num_threads(run.train.threads or torch.get_num_threads())
    factory = GridFactory.of(run, folder, say, device=device)
    direct = device if run.transport == "nccl" else None
    meet = _communicator_factory(run, store, direct)
    return Worker(line, factory, meet, say, status, age=run.grid.age, timeout_s=run.train.timeout_s, device=direct)


def _open_store(host: str, timeout_s: float) -> dist.TCPStore:
    """On that address alone: of its own accord it would listen on all."""
    server = socket.create_server((host, 0))
    port, patience, file = server.getsockname()[1], timedelta(seconds=timeout_s), server.detach()
    return dist.TCPStore(host, port, None, True, patience, wait_for_workers=False, master_listen_fd=file)


def _connect_store(host: str, port: int, timeout_s: float) -> dist.Store:
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=min(timeout_s, _CONNECT_TIMEOUT_S)))
    except RuntimeError as error:
        raise RankError(f"worker: no store at {host}:{port} ({str(error)[:200]}); the same command goes on") from None


def _communicator_factory(
    config: RunConfig, store: dist.Store, direct: torch.device | None = None
) -> CommunicatorFactory:
    """How the communicator of a membership is made: the coordinator has the rank after the last worker's.

    direct: from which device a worker's genomes go; None: from the host.
    """
    if config.transport == "mpi":
        return partial(_join_mpi_communicator, config.train.timeout_s)
    kind: Callable[..., GlooCommunicator] = (
        GlooCommunicator if direct is None else partial(NcclCommunicator, device=direct, pair=peers.connect_pair)
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
    """gloo listens on the loopback, or where this host is reached by those who reach the coordinator."""
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
