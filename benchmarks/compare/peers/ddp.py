"""A plain torch loop with DistributedDataParallel on one rank: what wrapping costs before anything is sent."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.compare.plain import plain
from benchmarks.compare.works import Prepared

SOURCE = None
WORKS = ("sngan",)


def prepare(work: str, path: Path | None) -> Prepared:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())

    def wrap(net: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        # two forwards of D before one backward: buffers must not be broadcast in between
        return DistributedDataParallel(net, broadcast_buffers=False), optimizer

    return plain(work, f"torch {torch.__version__}", wrap)
