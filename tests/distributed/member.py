"""One rank of a pool, a process of its own from the moment when `nursery` has forked it.

Cases come as JSON lines on the standard input; what they return goes, as JSON lines, to the descriptor ANSWERS, so
that a case may print. SIGUSR1 writes the stack of every thread to the standard error.
"""

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.core.dist import World

TIMEOUT = timedelta(seconds=30)
_PR_SET_PDEATHSIG = 1
ARRIVAL = timedelta(seconds=100)  # starting Python may take long on a busy machine


def join(rank: int, size: int, folder: Path) -> World:
    """The world of this pool; its groups are made when all ranks are here, for their time-out is short."""
    store = dist.FileStore(str(folder / "store"), size)
    store.set(f"here {rank}", "")
    store.wait([f"here {r}" for r in range(size)], ARRIVAL)
    group_store = dist.PrefixStore("group", store)
    dist.init_process_group("gloo", store=group_store, rank=rank, world_size=size, timeout=TIMEOUT)
    control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    own_store = dist.PrefixStore("world", store)
    return World(
        rank=rank,
        size=size,
        local_rank=rank,
        local_size=size,
        device=torch.device("cpu"),
        group=dist.group.WORLD,
        control=control,
        store=own_store,
    )


def call(world: World, case: str, arguments: dict) -> object:
    """What the case returns, from a clean slate: seed, default type, counted bytes."""
    module, _, name = case.partition(":")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    world.sent.clear()
    return getattr(importlib.import_module(module), name)(world, **arguments)


def stay_in_step(world: World, number: int) -> None:
    """A barrier in either group that sees whether it met the others' barrier after the same case."""
    for group in (world.group, world.control):
        met = torch.tensor(number)
        dist.all_reduce(met, group=group)
        if met != world.size * number:
            raise RuntimeError("the case left the ranks out of step: their collectives no longer meet")


def end_with_the_pool() -> bool:
    """Whether this process ends with the one that started it, even while it is stopped (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0


def main(rank: int, size: int, folder: Path, answers: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    with os.fdopen(answers, "w", buffering=1) as out:
        world = join(rank, size, folder)
        print(json.dumps({"value": end_with_the_pool()}), file=out)
        for number, line in enumerate(sys.stdin, start=1):
            order = json.loads(line)
            faulthandler.dump_traceback_later(order["timeout"] + 10, exit=True)  # should the pool be gone
            try:
                answer = json.dumps({"value": call(world, order["case"], order["arguments"])})
                stay_in_step(world, number)
            except BaseException:  # pytest's own failures are no Exceptions
                answer = json.dumps({"error": traceback.format_exc()})
            faulthandler.cancel_dump_traceback_later()
            print(answer, file=out)
    os._exit(0)  # what a case left running must not keep the process
