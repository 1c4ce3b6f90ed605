"""Child processes that leave their groups and end as Python ends, while the threads of gloo get no processor."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from paragan.distributed.launch.join import destroy_groups, join

referenced = []  # to the end of the program, as DDP's group is


def reduce_and_leave() -> None:
    world = join(None, torch.device("cpu"), 20.0, alone_group=True)
    referenced.append(world)
    referenced.extend(dist.new_group(backend="gloo") for _ in range(8))
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text() == "pt_gloo_runloop\n":
            os.sched_setscheduler(int(task.name), os.SCHED_IDLE, os.sched_param(0))
    for group in referenced[1:]:
        dist.all_reduce(torch.ones(3), group=group)
    destroy_groups(world)


def main(num_children: int) -> None:
    """Print the exit codes of the children."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    busy = os.fork()
    if not busy:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            pass
        os._exit(0)
    codes = []
    for _ in range(num_children):
        child = os.fork()
        if not child:
            reduce_and_leave()
            return
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.kill(busy, signal.SIGKILL)
    print(codes)


if __name__ == "__main__":
    main(int(sys.argv[1]))
