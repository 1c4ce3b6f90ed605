"""What workers send one another, beside a plain dictionary of it; also a program: one worker that meets with a mishap.

`python -m tests.distributed.cases_communicators FOLDER RANK SIZE WHAT`: what it tells is in FOLDER/told-RANK.
"""

import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.core.errors import RankError
from paragan.extensions.grid.transports import gloo_communicator

MOST_BYTES = 1 << 22
PATIENCE_S = 60.0  # no wait that ends well takes a fraction of it
_NUMBER = itertools.count()  # of memberships: all ranks of a pool make theirs in one order


def torus(rows, columns):
    """Who is next to whom, by worker; without oneself, each other worker once."""

    def near(worker):
        row, column = divmod(worker, columns)
        steps = ((-1, 0), (1, 0), (0, -1), (0, 1))
        return {(row + down) % rows * columns + (column + right) % columns for down, right in steps} - {worker}

    return [near(worker) for worker in range(rows * columns)]


def graph_of(size, edges):
    return [{b for a, b in edges if a == w} | {a for a, b in edges if b == w} for w in range(size)]


def any_graph(size, seed):
    pairs = list(itertools.combinations(range(size), 2))
    return graph_of(size, random.Random(seed).sample(pairs, len(pairs) // 2 + 1))


GRAPHS = {
    "alone": [set()],
    "pair": [{1}, {0}],
    "strangers": [set(), set()],
    "torus 1x2": torus(1, 2),
    "torus 2x2": torus(2, 2),
    "torus 1x4": torus(1, 4),
    "torus 2x3": torus(2, 3),
    "torus 3x3": torus(3, 3),
    "ring 3": torus(1, 3),
    "ring 4": torus(1, 4),
    "ring 5": torus(1, 5),
    "star 3": graph_of(3, [(2, 0), (2, 1)]),
    "star 4": graph_of(4, [(3, 0), (3, 1), (3, 2)]),
    "star 5": graph_of(5, [(2, other) for other in (0, 1, 3, 4)]),
    **{f"any {size}": any_graph(size, size) for size in (4, 5, 6)},
}


@lru_cache(maxsize=1 << 12)
def parcel(*key):
    """A list of messages: none, some of no bytes, some of many."""
    draw = random.Random(repr(key))
    lengths = [draw.choice([0, 1, 7, 1000, 70_000]) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
    generator = torch.Generator().manual_seed(draw.randrange(1 << 30))
    return [torch.randint(0, 256, (n,), dtype=torch.uint8, generator=generator) for n in lengths]


def world_of(graph, number):
    """Everything that is sent in one round, (from, to): messages. In every third round only along some edges."""
    edges = [(a, b) for a in range(len(graph)) for b in graph[a]]
    if number % 3 == 2:
        edges = [(a, b) for a, b in edges if random.Random(repr((number, *sorted((a, b))))).random() < 0.5]
    return {(a, b): parcel(number, a, b) for a, b in edges}


def same(found, expected):
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def play(comm, graph, rounds):
    """Exchanges and gathers as in the dictionary; in every fourth round all peers are sent the same."""
    for number in range(rounds):
        play_round(comm, graph, number)
        if number % 5 == 1:
            gathers(comm, number)


def play_round(comm, graph, number):
    sent = world_of(graph, number)
    if number % 4 == 3:
        sent = {(a, b): parcel(number, a) for a, b in sent}
    found = comm.exchange({b: tensors for (a, b), tensors in sent.items() if a == comm.rank})
    expected = {a: tensors for (a, b), tensors in sent.items() if b == comm.rank}
    assert found.keys() == expected.keys()
    assert all(same(found[peer], expected[peer]) for peer in expected), number


def gathers(comm, number, leads=0):
    found = comm.gather(parcel(number, comm.rank, "all") if comm.rank < comm.size else [])
    assert (found is None) == (comm.rank != leads)
    if found is not None:
        assert len(found) == comm.size
        assert all(same(tensors, parcel(number, worker, "all")) for worker, tensors in enumerate(found))


def together(size, do):
    """`do(rank)` in a thread per worker; what each returned, or raised, by rank."""
    found = [None] * size

    def run(rank):
        try:
            found[rank] = do(rank)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    [thread.start() for thread in threads]
    [thread.join(2 * PATIENCE_S) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    return found


def fine(found):
    """Raise what a worker raised."""
    for value in found:
        if isinstance(value, BaseException):
            raise value
    return found


def link(store, rank, graph, **options):
    return gloo_communicator.GlooCommunicator(
        store, options.pop("name", "m"), rank, len(graph), graph[rank],
        **{"max_bytes": MOST_BYTES, "timeout_s": PATIENCE_S, **options},
    )  # fmt: skip


def linked_threads(graph, **options):
    """The communicators of workers that are threads here, over gloo, by rank."""
    store = dist.HashStore()
    return fine(together(len(graph), lambda rank: link(store, rank, graph, **options)))


def equals(world, graph, rounds):
    """In a pool: the exchange is the dictionary's."""
    comm = link(world.store, world.rank, GRAPHS[graph], name=f"communicator/{next(_NUMBER)}")
    play(comm, GRAPHS[graph], rounds)
    comm.close()


def mishap(join, rank, size, what):
    """Workers in a full graph; the last one meets with `what` between two exchanges. What the others report.

    what: kill, stop, exit; with "/flag" their `stopped` becomes true after a while.
    """
    what, _, flag = what.partition("/")
    graph = graph_of(size, list(itertools.combinations(range(size), 2)))
    flag_at = [float("inf")]
    short = what == "stop" and not flag
    timeout_s = 3.0 if short or what == "exit" else PATIENCE_S
    comm = join("first", range(size), graph, timeout_s=timeout_s, stopped=lambda: time.monotonic() > flag_at[0])
    play(comm, graph, 6)
    if rank == size - 1:
        time.sleep(1.0)  # for what is still on its way
        if what == "exit":
            os._exit(1)
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[what])
    began = time.monotonic()
    flag_at[0] = began + 1.0 if flag else flag_at[0]
    told = {"rank": rank, "timeout_s": timeout_s}
    try:
        for _ in range(3):
            comm.exchange({peer: [torch.zeros(2_000_000, dtype=torch.uint8)] for peer in graph[rank]})
        told["error"] = "none"
    except RankError as error:
        told |= {"error": str(error), "worker": getattr(error, "worker", None)}
    told["after_s"] = time.monotonic() - began
    began = time.monotonic()
    comm.abort()
    told["drop_s"] = time.monotonic() - began
    graph = graph_of(size - 1, list(itertools.combinations(range(size - 1), 2)))
    again = join("second", range(size - 1), graph, timeout_s=PATIENCE_S)
    play(again, graph, 6)
    again.close()
    return {**told, "again": True}


def gloo_worker(folder, rank, size, what):
    store = dist.FileStore(str(folder / "store"), size)
    told = mishap(lambda name, _, graph, **o: link(store, rank, graph, name=name, **o), rank, size, what)
    (folder / f"told-{rank}").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    gloo_worker(Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4])
