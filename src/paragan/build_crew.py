"""From a resolved config with a grid and workers to the run of its coordinator, and to a worker's part of it."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
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
    token, timeout_s = secrets.token_hex(32), config.train.timeout_s
    listener = Listener(token)
    crew = Crew(listener.address, token, folder / "ranks")
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))
    told = {"config": dump(config), "folder": str(folder.resolve()), "store": ["127.0.0.1", store.port]}

    def accept() -> Line | None:
        line = listener.accept(0.0)
        if line is not None:
            line.send("welcome", **told)
        return line

    roster = Roster(accept, say, config.grid.beat_s, crew.kill)
    plain = ground.population([first], lambda text: None)
    coordinator = Coordinator(
        roster, config.grid.rows_columns, plain.topology, partial(_met, store, timeout_s), first.centre, timeout_s
    )

    def begin() -> None:
        crew.start(config.workers or 1)
        coordinator.await_workers(config.workers or 1, crew.trouble)

    def end() -> None:
        coordinator.end()
        listener.close()
        crew.end()

    absent = unbuilt(first.standing(), config.grid.num_cells)
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
        coordinator=coordinator,
        clock=first.gan.clock,
        begin=begin,
        end=end,
    )
    return ground.evolution(first, population, folder, say, stop)


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
