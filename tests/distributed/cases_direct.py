"""What accelerators have, by gloo, for workers whose data goes past their links; also a program: one such worker.

`python -m tests.distributed.cases_direct FOLDER RANK SIZE WHAT`: what it tells is in FOLDER/told-RANK.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.core.errors import RankError
from paragan.distributed.transports import gloo_link
from paragan.distributed.transports.nccl_communicator import NcclCommunicator
from tests.distributed.cases_communicators import GRAPHS, MOST_BYTES, PATIENCE_S, graph_of, mishap, play

_NUMBER = itertools.count()  # of memberships: all ranks of a pool make theirs in one order
HOST = torch.device("cpu")


class Device:
    """Works off the calls of all groups of a worker one by one, as the slowest of devices may. sent: how many bytes."""

    def __init__(self):
        self.sent, self.works, self.goes_on = [], [], threading.Event()
        self.goes_on.set()
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="device").start()

    def pair(self, store, rank, device, timeout_s):
        assert device == HOST
        return Group(self, gloo_link.connect_pair(store, "gloo", rank, timeout_s), 1 - rank)

    def call(self, do, tensor):
        work = Work(do, tensor)
        self.works = [*(w for w in self.works if not w.is_completed()), work]
        self._calls.put(work)
        return work

    def end(self):
        self.goes_on.set()
        self._calls.put(None)

    def _run(self):
        while (work := self._calls.get()) is not None:
            self.goes_on.wait()
            work.run()


class Group:
    def __init__(self, device, group, other):
        self._device, self._group, self._other = device, group, other

    def send(self, tensors, other, tag):
        assert other == self._other
        self._device.sent.append(len(tensors[0]))
        return self._device.call(lambda: self._group.send(tensors, other, tag).wait(), tensors)

    def recv(self, tensors, other, tag):
        assert other == self._other
        return self._device.call(lambda: self._group.recv(tensors, other, tag).wait(), tensors)

    def abort(self):
        if not all(work.is_completed() for work in self._device.works):
            with suppress(RuntimeError):  # one time-out ends all waits of a group
                self._group.recv([torch.empty(1)], self._other, 1).wait(timedelta(milliseconds=1))
        self._device.end()


class Work:
    def __init__(self, do, tensors):
        self._do, self._tensors, self._error, self._ended = do, tensors, None, False

    def run(self):
        try:
            self._do()
        except RuntimeError as error:
            self._error = error
        self._ended = True

    def is_completed(self):
        return self._ended

    def wait(self):
        assert self._ended
        if self._error is not None:
            raise self._error


def join(store, rank, graph, device=None, **options):
    found = Device() if device is None else device
    comm = NcclCommunicator(
        store, options.pop("name", "m"), rank, len(graph), graph[rank], device=HOST,
        **{"pair": found.pair, "most_bytes": MOST_BYTES, "timeout_s": PATIENCE_S, **options},
    )  # fmt: skip
    comm.stand_in = found
    return comm


def equals(world, graph, rounds):
    """In a pool: the exchange is the dictionary's."""
    comm = join(world.store, world.rank, GRAPHS[graph], name=f"direct/{next(_NUMBER)}")
    play(comm, GRAPHS[graph], rounds)
    comm.close()


def amid(store, rank):
    """Both have told one another what comes, and one of them is killed before any of it does."""
    graph = graph_of(2, [(0, 1)])
    comm = join(store, rank, graph)
    play(comm, graph, 6)
    if rank == 1:
        comm._swap = lambda *data: os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        comm.exchange({1 - rank: [torch.zeros(2_000_000, dtype=torch.uint8)]})
    except RankError as error:
        told = {"error": str(error), "worker": getattr(error, "worker", None)}
    told["after_s"] = time.monotonic() - began
    comm.abort()
    return {**told, "drop_s": time.monotonic() - began - told["after_s"]}


def worker(folder, rank, size, what):
    store = dist.FileStore(str(folder / "store"), size)
    if what == "amid":
        told = amid(store, rank)
    else:
        told = mishap(lambda name, _, graph, **o: join(store, rank, graph, name=name, **o), rank, size, what)
    (folder / f"told-{rank}").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker(Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4])
