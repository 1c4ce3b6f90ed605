"""One of two ranks on one device: `python -m tests.gpu.two_on_one STORE DEVICE STRATEGY RANK`; 0: they are one."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from paragan.core.dist import World
from tests.laws.matrix_gan import BATCH
from tests.laws.small_gan import distance

TIMEOUT = timedelta(seconds=60)


def main(path: str, device: str, name: str, rank: int) -> int:
    from tests.gpu.test_ranks import held, plain, played

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2, timeout=TIMEOUT)
    control = dist.new_group(backend="gloo", timeout=TIMEOUT)
    here = torch.device(device, 0) if device != "cpu" else torch.device(device)
    world = World(
        rank=rank, size=2, local_rank=rank, local_size=2, device=here, group=dist.group.WORLD, control=control
    )
    try:
        found = distance(held(played(name, world, share=world.share(BATCH))), plain(device))
    except (
        RuntimeError,
        NotImplementedError,
    ) as error:  # gloo lacks some collectives on accelerators: told, not failed
        if device == "cpu" or "gloo" not in str(error).lower():
            raise
        print(f"UNSUPPORTED {error}", flush=True)
        os._exit(1)  # the other may wait in a collective
    assert found <= 1e-10, found
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4])))
