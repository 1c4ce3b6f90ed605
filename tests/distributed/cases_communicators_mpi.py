"""What processes of one mpiexec do: `python -m tests.distributed.cases_communicators_mpi FOLDER CASE`.

What each tells is in FOLDER/told-RANK.
"""

import itertools
import json
import os
import sys
from pathlib import Path

import pytest
import torch

from paragan.extensions.grid.transports import mpi_communicator
from paragan.extensions.grid.transports.communicator import WorkerError
from tests.distributed.cases_communicators import GRAPHS, MOST_BYTES, PATIENCE_S, gathers, mishap, play, play_round

_NUMBER = itertools.count()  # of memberships: all processes count them, also those that take no part


def join(world):
    """As `mishap` wants it."""

    def joined(name, workers, graph, **options):
        peers = graph[list(workers).index(world.rank)] if world.rank in workers else []
        return mpi_communicator.MpiCommunicator(
            name, workers, peers, **{"max_bytes": MOST_BYTES, "timeout_s": PATIENCE_S, **options}
        )

    return joined


def equal(world, graph, first=0, coordinator=None, rounds=12):
    """Worker 0 is process `first` of WORLD; those that are no workers take no part."""
    members, name = range(first, first + len(GRAPHS[graph])), f"equals/{next(_NUMBER)}"
    if world.rank not in (*members, coordinator):
        return
    comm = join(world)(name, members, GRAPHS[graph], coordinator=coordinator)
    if world.rank != coordinator:  # each neighbour once, in the order of `exchange`
        assert comm._local.outedges == comm._local.inedges == sorted(comm.peers), graph
    if world.rank == coordinator:
        [gathers(comm, number, len(members)) for number in range(1, rounds, 5)]
    elif coordinator is not None:
        for number in range(rounds):
            play_round(comm, GRAPHS[graph], number)
            if number % 5 == 1:
                gathers(comm, number, len(members))
    else:
        play(comm, GRAPHS[graph], rounds)
    comm.close()


def too_large(world):
    """Of an exchange, of a gathering."""
    told = "worker 1 sends a message of size 11; the limit is 10" if world.rank == 0 else "worker 0"
    data = [torch.zeros(11 if world.rank else 1, dtype=torch.uint8)]
    for name, call in (("one", lambda c: c.exchange({1 - world.rank: data})), ("two", lambda c: c.gather(data))):
        max_bytes = (10, 1 << 20)[world.rank]
        comm = join(world)(name, [0, 1], GRAPHS["pair"], max_bytes=max_bytes, timeout_s=2.0)
        with pytest.raises(WorkerError, match=told):
            call(comm)
        comm.abort()


def equals(world):
    for graph, options in OPTIONS[world.size]:
        equal(world, graph, **options)


def main(folder, what):
    world = mpi_communicator.MpiWorld()
    (folder / f"pid-{world.rank}").write_text(str(os.getpid()))
    case = globals().get(what.replace("/", "_"))
    told = {"returned": case(world)} if case else mishap(join(world), world.rank, world.size, what)
    (folder / f"told-{world.rank}").write_text(json.dumps(told))


OPTIONS = {
    2: [("pair", {}), ("strangers", {}), ("alone", {})],
    4: [
        *((graph, {}) for graph in ("torus 2x2", "torus 1x4", "star 4", "any 4", "strangers", "star 3", "alone")),
        *(("ring 3", {"first": 1}), ("ring 3", {"first": 1, "coordinator": 0})),
        ("torus 1x2", {"first": 2, "coordinator": 1}),
    ],
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2])
