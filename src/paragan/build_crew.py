"""From a resolved config with a grid and workers to the run of its coordinator, and to a worker's part of it."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist

from paragan.build_cells import Ground
from paragan.coevolution.cell import Cell
from paragan.coevolution.conducted import Conducted, unbuilt
from paragan.coevolution.coordinator import Coordinator
from paragan.coevolution.evolution import Evolution
from paragan.coevolution.roster import Roster
from paragan.coevolution.standing import Centre
from paragan.coevolution.topology import Topology
from paragan.coevolution.worker import Worker
from paragan.config import RunConfig, dump, loads
from paragan.core.errors import ConfigError
from paragan.launch.crew import Crew
from paragan.transports._communicator import Communicator
from paragan.transports.control import Line, Listener, connect
from paragan.transports.linked import Linked

_MOST_BYTES = 1 << 34  # of a genome


def evolution(config: RunConfig, folder: Path, say: Callable[[str], None], stop: Callable[[], bool]) -> Evolution:
    """The run of a grid whose cells are on workers, which it starts when the first generation is due."""
    assert config.grid is not None and config.workers is not None
    if config.workers > config.grid.num_cells:
        most = config.grid.num_cells
        raise ConfigError(f"workers: found {config.workers} for a grid of {most} cells, expected at most {most}")
    ground = Ground.of(config, folder, say)
    first = ground.cell(0)
    plain, absent = ground.population([first], lambda text: None), unbuilt(first.standing(), config.grid.num_cells)
    office = _Office.open(config, folder, say)
    population = Conducted(
        plain.seed,
        plain.options,
        cast(Sequence[Cell], absent),
        plain.topology,
        plain.bout,
        plain.executor,
        judged=plain.judged,
        distance=plain.distance,
        absent=absent,
        coordinator=office.coordinator(plain.topology, first.centre),
        clock=first.gan.clock,
        begin=office.begin,
        end=office.end,
    )
    return ground.evolution(first, population, folder, say, stop)


@dataclass
class _Office:
    """Where a coordinator listens, and the workers that it starts."""

    config: RunConfig
    say: Callable[[str], None]
    listener: Listener
    crew: Crew
    store: dist.Store
    welcome: Mapping[str, Any]
    found: Coordinator | None = None

    @classmethod
    def open(cls, config: RunConfig, folder: Path, say: Callable[[str], None]) -> _Office:
        token, patience = secrets.token_hex(32), timedelta(seconds=config.train.timeout_s)
        listener = Listener(token)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=patience)
        welcome = {"config": dump(config), "folder": str(folder.resolve()), "store": ["127.0.0.1", store.port]}
        return cls(config, say, listener, Crew(listener.address, token, folder / "ranks"), store, welcome)

    def coordinator(self, topology: Callable[[int], Topology], like: Centre) -> Coordinator:
        grid, timeout_s = self.config.grid, self.config.train.timeout_s
        assert grid is not None
        roster = Roster(self._accept, self.say, grid.beat_s, self.crew.kill)
        meet = partial(_met, self.store, timeout_s)
        self.found = Coordinator(roster, grid.rows_columns, topology, meet, like, timeout_s)
        return self.found

    def begin(self) -> None:
        """Start the workers, and wait for them."""
        assert self.config.workers is not None and self.found is not None
        self.crew.start(self.config.workers)
        self.found.await_workers(self.config.workers, self.crew.trouble)

    def end(self) -> None:
        """Send them home."""
        if self.found is not None:
            self.found.end()
        self.listener.close()
        self.crew.end()

    def _accept(self) -> Line | None:
        line = self.listener.accept(0.0)
        if line is not None:
            line.send("welcome", **self.welcome)
        return line


def worker(token: str, host: str, port: int, say: Callable[[str], None], timeout_s: float = 60.0) -> str:
    """Take part in the run whose coordinator listens there, to its end; why it ended before, if it did."""
    line = connect(token, host, port, timeout_s, about())
    try:
        welcome = line.receive(timeout_s)
        if welcome is None:
            return f"the coordinator at {host}:{port} said nothing ({line.lost or 'silent'})"
        config = loads(welcome["config"], "the coordinator's config")
        assert config.grid is not None
        ground = Ground.of(config, Path(welcome["folder"]), say)
        address, limit_s = welcome["store"], config.train.timeout_s
        store = dist.TCPStore(address[0], address[1], is_master=False, timeout=timedelta(seconds=limit_s))
        return Worker(line, ground, partial(_met, store, limit_s), config.grid.beat_s, say).run()
    finally:
        line.close()


def about() -> dict[str, Any]:
    """What a worker offers."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "cores": os.cpu_count()}


def _met(store: dist.Store, timeout_s: float, order: Mapping[str, Any], stopped: Callable[[], bool]) -> Communicator:
    """The communicator of a membership: the coordinator is rank 0, and has nobody to exchange genomes with."""
    return Linked(
        store,
        f"membership/{order['membership']}",
        order["rank"],
        order["size"],
        order["peers"],
        most_bytes=_MOST_BYTES,
        timeout_s=timeout_s,
        stopped=stopped,
    )
