"""What can happen to a pool of ranks."""

import os
import signal
import time

import torch
import torch.distributed as dist


def describe(world, word):
    """Both groups and the store work; what was said on the standard output is nobody's answer."""
    print('{"value": "not this"}')
    total = world.sum(torch.tensor([float(world.rank + 1)])).item()
    world.store.set(f"word {world.rank}", word)
    words = [world.store.get(f"word {r}").decode() for r in range(world.size)]
    return [world.rank, world.size, total, world.gather(word), words, dict(world.sent)]


def raises(world, rank):
    """One rank raises, the others wait for it."""
    if world.rank == rank:
        raise ValueError(f"the reason on rank {rank}")
    world.barrier()


def dies(world, rank):
    if world.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    world.barrier()


def hangs_here(world, rank):
    if world.rank == rank:
        time.sleep(60)


def leaves_one_behind(world):
    """One rank gives the group a collective more than the others; nobody notices within the case."""
    if world.rank == 0:
        dist.all_reduce(torch.tensor(7), group=world.group, async_op=True)


def returns_a_tensor(world):
    return torch.zeros(1)
