"""Ranks that compute, and all-reduce 512 bytes or 8 MB in between: prints the seconds that this adds, as JSON by bytes.

Idle ranks would answer at once. A rank that computes wakes the threads that send and receive later, leaves the
all-reduce later than another one, and arrives at the next one later; so what counts is the time of all rounds without
the work in them, as in a network whose layers synchronise. 512 bytes are the statistics of such a layer; an all-reduce
of fewer numbers than ranks has empty messages, and is faster.
"""

from __future__ import annotations

import json
import os
import time

import torch
import torch.distributed as dist

from paragan.core.dist import World
from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment

ROUNDS = {512: 300, 8_000_000: 5}  # by bytes
WORK_S = 0.005


def work() -> None:
    """Compute for `WORK_S` seconds of the processor."""
    end = time.thread_time() + WORK_S
    while time.thread_time() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)


def added_s(world: World, num_bytes: int, rounds: int) -> float:
    """Seconds that an all-reduce adds to the work of ranks, which share the cores of this machine."""
    tensor = torch.ones(num_bytes // 4)
    world.barrier()
    began = time.monotonic()
    for _ in range(rounds):
        work()
        dist.all_reduce(tensor)
    round_s = (time.monotonic() - began) / rounds
    return round_s - WORK_S * max(1.0, world.size / len(os.sched_getaffinity(0)))


def main() -> None:
    torch.set_num_threads(1)
    world = join(from_environment(), torch.device("cpu"), 120.0)
    print(json.dumps({size: added_s(world, size, rounds) for size, rounds in ROUNDS.items()}), flush=True)
    destroy_groups(world)


if __name__ == "__main__":
    main()
