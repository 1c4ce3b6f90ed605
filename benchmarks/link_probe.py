"""Two ranks that time an all-reduce of 4 bytes and one of 8 MB: prints the mean seconds by bytes, as JSON.

The small one follows 5 ms of work: a rank that has just computed wakes its threads later than one that only sends. The
mean and not the median: a step has tens of them, and one in ten takes ten times as long.
"""

from __future__ import annotations

import json
import statistics
import time

import torch
import torch.distributed as dist

from paragan.distributed.launch.join import destroy_groups, join
from paragan.distributed.launch.rank_env import from_environment

SIZES = {4: 200, 8_000_000: 5}  # bytes and repeats


def work() -> None:
    """Compute for about 5 ms."""
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        torch.ones(64, 64) @ torch.ones(64, 64)


def main() -> None:
    torch.set_num_threads(1)
    world = join(from_environment(), torch.device("cpu"), 120.0)
    found = {}
    for size, repeats in SIZES.items():
        tensor = torch.ones(size // 4)
        times = []
        for _ in range(repeats):
            world.barrier()
            if size == 4:
                work()
            began = time.monotonic()
            dist.all_reduce(tensor)
            times.append(time.monotonic() - began)
        found[str(size)] = statistics.fmean(times)
    print(json.dumps(found), flush=True)
    destroy_groups(world)


if __name__ == "__main__":
    main()
