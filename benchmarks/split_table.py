"""A table of a million classes, split by rows over two ranks, against the whole table in one process.

Measures peak memory of a rank, bytes on its link, and CPU seconds of a step of Adam; `normed` is with spectral norm.
python -m benchmarks.split_table plain|normed [pairs]
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from benchmarks.paired_timing import compare
from benchmarks.record import write
from paragan.core.dist import ALONE, World
from paragan.core.layout import local_shard
from paragan.core.network_factory import NetworkFactory
from paragan.layers.blocks import identity_wrap
from paragan.layers.init import initialise
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.split import class_tables, split_layers
from paragan.layers.update_once import begin_update
from paragan.parallel.base.fully_shard import build_sharded

CLASSES, FEATURES, BATCH = 1_000_000, 128, 64
MIB = 2**20


class Projection(nn.Module):
    """The class term of a discriminator: e(y).f, with nothing around it."""

    weight_init = "glorot"

    def __init__(self, normed: bool) -> None:
        super().__init__()
        wrap = spectral_norm if normed else identity_wrap
        self.embed = wrap(nn.Embedding(CLASSES, FEATURES))

    def forward(self, features_BF: torch.Tensor, y_B: torch.Tensor) -> torch.Tensor:
        return (self.embed(y_B) * features_BF).sum(1)


def built(world: World, normed: bool) -> nn.Module:
    """The network on this rank, never whole on one of several ranks."""
    make = NetworkFactory(partial(Projection, normed), partial(initialise, seed=0, stream="d"))
    return build_sharded(make, lambda net: split_layers(net, world, class_tables(net, CLASSES)))


def step_of(net: nn.Module, world: World) -> Callable[[], None]:
    """One update with Adam on this rank's rows of the batch."""
    pieces = [local_shard(p.detach()).requires_grad_() for p in net.parameters()]
    adam = torch.optim.Adam(pieces, 1e-4, betas=(0.0, 0.9), fused=True)
    rows = BATCH // world.size
    draw = torch.Generator().manual_seed(world.rank)
    features_BF = torch.randn(rows, FEATURES, generator=draw, requires_grad=True)
    y_B = torch.randint(CLASSES, (rows,), generator=draw)

    def step() -> None:
        begin_update(net)
        (1 - net(features_BF, y_B)).relu().sum().backward()
        for piece, weight in zip(pieces, net.parameters(), strict=True):
            piece.grad = local_shard(weight.grad)
            weight.grad = None
        adam.step()
        adam.zero_grad()

    return step


def rank_main(rank: int, size: int, folder: str, case: str, normed: bool, pairs: int) -> None:
    """Join the ranks, measure, and let rank 0 store what it found."""
    torch.set_num_threads(1)
    world = ALONE
    if size > 1:
        store = dist.FileStore(os.path.join(folder, "store"), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(minutes=5))
        world = World(rank=rank, size=size, group=dist.group.WORLD, control=dist.new_group(backend="gloo"))
    found = memory(world, normed) if case == "memory" else seconds(world, normed, pairs)
    if rank == 0:
        torch.save(found, os.path.join(folder, "found"))
    if size > 1:
        dist.barrier()


def memory(world: World, normed: bool) -> dict[str, float]:
    """Peak memory of the process above that before, in MiB, and bytes on its link in one step."""
    before = _peak()
    net = built(world, normed)
    after_build = _peak()
    step = step_of(net, world)
    step()
    world.on_links.clear()
    step()
    links = {f"{kind}_bytes_on_link": num_bytes for kind, num_bytes in world.on_links.items()}
    return {"build_mib": after_build - before, "build_and_steps_mib": _peak() - before, **links}


def seconds(world: World, normed: bool, pairs: int) -> dict[str, Any]:
    """CPU seconds of a rank in a split step over those of the whole step, which the other rank waits for."""
    split = step_of(built(world, normed), world)
    whole = step_of(built(ALONE, normed), ALONE) if world.is_main else lambda: None

    def in_turn(step: Callable[[], None]) -> Callable[[], None]:
        return lambda: (world.barrier(), step())[1]

    return asdict(compare(in_turn(split), in_turn(whole), pairs))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def run(size: int, case: str, normed: bool, pairs: int = 0) -> Any:
    """What rank 0 of fresh processes found."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (size, folder, case, normed, pairs), size)
        return torch.load(os.path.join(folder, "found"))


def main(kind: str, pairs: int) -> None:
    """Measure one kind of table and write the results."""
    normed = kind == "normed"
    found: dict[str, Any] = {"classes": CLASSES, "features": FEATURES, "batch": BATCH, "threads": 1}
    for size in (1, 2):
        found[f"memory, {size} ranks"] = run(size, "memory", normed)
    found["a rank of 2 / whole, CPU seconds of a step"] = run(2, "seconds", normed, pairs)
    for name, value in found.items():
        print(name, value)
    write(f"split-table-{kind}", found)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15)
