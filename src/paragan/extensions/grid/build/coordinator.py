"""Coordinator of a grid on workers."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from paragan.config import RunConfig, dump
from paragan.core.command import program_command
from paragan.core.dist import serve_store
from paragan.core.errors import ConfigError, RankError
from paragan.core.files import create_file, create_subfolder
from paragan.core.local_processes import LocalProcesses
from paragan.core.printable import counted
from paragan.extensions.grid.build.trainer import population_trainer
from paragan.extensions.grid.build.worker import communicator_factory
from paragan.extensions.grid.cell_state import Centre
from paragan.extensions.grid.evolution import Evolution
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.topology import Topology
from paragan.extensions.grid.transports.control import Listener
from paragan.extensions.grid.transports.control_connection import ControlConnection
from paragan.extensions.grid.workers.coordinator import Coordinator
from paragan.extensions.grid.workers.handshake import (
    TOKEN,
    TOKEN_FILE,
    ExternalWorkers,
    incompatibility,
    local_pid,
    new_token,
    save_token,
)
from paragan.extensions.grid.workers.membership import Membership
from paragan.extensions.grid.workers.remote_population import RemotePopulation

_PATIENCE_S = 10.0  # for local workers that were dismissed
_REFUSED_S = 10.0  # between two messages about refused connections


def evolution_on_workers(
    config: RunConfig,
    folder: Path,
    log: Callable[[str], None],
    stop: Callable[[], bool],
    external_workers: ExternalWorkers | None = None,
) -> Evolution:
    """Return the trainer of a grid whose cells are on workers.

    external_workers: processes started by a launcher; None: `begin` starts local workers.
    """
    _check_num_workers(config)
    factory = GridFactory(config, folder, log, stop=stop)
    first = factory.cell(0)  # never trained: for the shapes of its networks and its initial state
    local = factory.population([first], lambda text: None)
    server = _CoordinatorServer(
        config=config,
        folder=folder,
        log=log,
        external_workers=external_workers,
        topology=local.topology,
        like=first.centre,
    )
    population = RemotePopulation(
        seed=local.seed,
        options=local.options,
        cells=(),
        topology=local.topology,
        make_evaluator=local.make_evaluator,
        executor=local.executor,
        mixture_scorer=local.mixture_scorer,
        coordinator=server.coordinator,
        initial=first.state(),
        clock=first.gan.clock,
        begin=server.begin,
        end=server.end,
    )
    return population_trainer(factory, first, population, folder, log, stop)


def _check_num_workers(config: RunConfig) -> None:
    assert config.grid is not None and config.workers is not None
    num_cells = config.grid.num_cells
    if config.workers > num_cells:
        raise ConfigError(
            f"workers: {config.workers} workers are too many for a grid of {counted(num_cells, 'cell')}; "
            f"use at most {num_cells}"
        )


class _CoordinatorServer:
    """Address of a coordinator, and its workers: processes of this host unless a launcher has started them.

    Workers exit when the coordinator is unreachable.
    """

    _silent_until = 0.0  # time before which refused connections are not reported again

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        log: Callable[[str], None],
        external_workers: ExternalWorkers | None,
        topology: Topology,
        like: Centre,
    ) -> None:
        grid = config.grid
        assert grid is not None
        timeout_s = config.train.timeout_s
        host, port = config.coordinator_address
        self.config = config
        self.folder = folder
        self.log = log
        self.external_workers = external_workers
        self.token = os.environ.get(TOKEN) or new_token()
        self.listener = Listener(self.token, host, port)
        # stops serving when no object refers to it: over MPI only this one does
        self.store = serve_store(host, port=0, patience=timedelta(seconds=timeout_s))
        run_folder = str(folder.resolve())
        self.welcome: dict[str, Any] = {"config": dump(config), "folder": run_folder, "store": self.store.port}
        self.processes = LocalProcesses()
        membership = Membership(
            accept=self._accept,
            log=log,
            heartbeat_s=grid.heartbeat_s,
            timeout_s=timeout_s,
            on_failure=self._kill,
            is_recoverable=config.transport != "mpi",  # mpiexec ends all processes when one is killed
        )
        self.coordinator = Coordinator(
            membership=membership,
            shape=grid.rows_columns,
            topology=topology,
            make_communicator=communicator_factory(config, self.store),
            like=like,
            timeout_s=timeout_s,
        )

    def begin(self) -> None:
        """Start the local workers, or call the external ones, and wait for them."""
        config = self.config
        host, port = self.listener.address
        assert config.workers is not None
        save_token(create_subfolder(self.folder, "ranks") / "token", self.token)
        if self.external_workers is not None:
            self.external_workers.broadcast({"token": self.token, "host": host, "port": port})
        else:
            self._start_workers(config.workers)
        self.coordinator.await_workers(config.workers, self._start_error)
        if config.transport != "mpi":
            token = shlex.quote(str(self.folder / "ranks" / "token"))
            self.log(f"workers   to add a worker, run  {TOKEN_FILE}={token} {program_command()} worker {host}:{port}")

    def end(self) -> None:
        """Release the workers; local ones that do not end are killed."""
        self.coordinator.end()
        self.listener.close()
        self.processes.wait(_PATIENCE_S)
        self.processes.kill()
        (self.folder / "ranks" / "token").unlink(missing_ok=True)

    def _accept(self) -> ControlConnection | None:
        """Return the next compatible worker; refuse others with a reason."""
        self._report_refused()
        while (connection := self.listener.accept(0.0)) is not None:
            reason = incompatibility(connection.peer_info, self.welcome["config"])
            with suppress(RankError):  # it has disconnected
                if not reason:
                    connection.send("welcome", **self.welcome)
                    return connection
                self.log(f"workers   {connection.peer_info.get('host', connection.peer_address)} was refused: {reason}")
                connection.send("refused", reason=reason)
            connection.close()
        return None

    def _report_refused(self) -> None:
        """Print how many clients did not prove that they know the token, at most once in 10 s."""
        refused = self.listener.refused
        if refused and time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + _REFUSED_S
            self.log(f"workers   refused connections: {len(refused)}, the last: {refused[-1]}")
            refused.clear()

    def _start_workers(self, count: int) -> None:
        """Start workers on this host, each on a separate accelerator while there are enough."""
        host, port = self.listener.address
        # other users cannot read the environment, unlike a command line
        environment = {**os.environ, TOKEN: self.token}
        for number in range(count):
            create_file(self._log(number)).close()
            arguments = ["worker", f"{host}:{port}", "--device", str(number)]
            self.processes.start([sys.executable, "-P", "-m", "paragan", *arguments], environment, self._log(number))

    def _start_error(self) -> str:
        """Return why a local worker has failed, by the last line of its output; empty if none has."""
        for number, code in enumerate(self.processes.codes):
            if code not in (None, 0):
                reason = self.processes.exit_reason(number)
                return f"worker {number + 1} {reason}; see {self._log(number)}"
        return ""

    def _kill(self, worker: Mapping[str, Any]) -> None:
        """Kill a local worker that hangs: it must not rejoin a run that continues without it.

        A worker of another host is left alone; it may have the pid of one that this process has started.
        """
        pid = local_pid(worker)
        self.processes.kill([process for process in self.processes.running if process.pid == pid])

    def _log(self, number: int) -> Path:
        return self.folder / "ranks" / f"worker-{number + 1}.log"
