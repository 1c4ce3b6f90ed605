"""Two ranks that time all-reduces of several sizes, each after some milliseconds of work: prints the median seconds
by bytes, as JSON. A rank that has just computed wakes its threads later than one that only sends.
"""

from __future__ import annotations

import json
import statistics
import time

import torch
import torch.distributed as dist

from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment

SIZES = (4, 160_000, 640_000)
REPEATS = 15


def work() -> None:
    """Compute for about 5 ms."""
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)


def main() -> None:
    torch.set_num_threads(1)
    world = join(from_environment(), torch.device("cpu"), 120.0)
    found = {}
    for size in SIZES:
        tensor = torch.ones(size // 4)
        times = []
        for _ in range(REPEATS):
            world.barrier()
            work()
            began = time.monotonic()
            dist.all_reduce(tensor)
            times.append(time.monotonic() - began)
        found[str(size)] = statistics.median(times)
    print(json.dumps(found), flush=True)
    destroy_groups(world)


if __name__ == "__main__":
    main()
