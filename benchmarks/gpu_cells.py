"""On an accelerator: one cell after another, all as one batched program, and that program recorded.

python -m benchmarks.gpu_cells [steps]

Aims: the faster of the last two 8 times as fast as the first at 4x4, 25 times at 8x8; recorded 3 times as fast at 2x2;
a grid of 16x16 that trains. Networks as MNIST has: batch 100, networks 64-256-256-1024 and
1024-256-256-1; images are made up, for time does not depend on them. Then DCGANs with batch norm at 2x2 and 4x4,
without an aim.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import torch
from torch import Tensor

from benchmarks.record import write
from paragan.config import read_recipe
from paragan.core.types import Batch
from paragan.extensions.grid.build import trainer as grid
from paragan.hardware import device as devices
from paragan.loading.loader import BatchStream

NETWORKS = "model={name: mlp, latent: 64, g_widths: [256, 256], d_widths: [256, 256]}"
CONVOLUTIONS = "model={name: dcgan, latent: 64, width: 32, d_norm: batch}"
WORDS = (
    *("data={name: synthetic, kind: ring, num_images: 10000, size: 32}", "train.batch=100", "scheme=synchronous"),
    *("penalties=[]", "augment=null", "evaluation.features=null", "grid.fitness.num_images=100"),
)
AIMS = {"2x2": 3.0, "4x4": 8.0, "8x8": 25.0}
ROUNDS = 5


def stepper(shape: str, kind: str, networks: str = NETWORKS) -> Callable[[int], float]:
    """Seconds of a step of all cells, over so many."""
    words = (*WORDS, networks, f"grid.shape={shape}", f"grid.executor={kind}")
    population = grid.evolution(read_recipe("digits", words), Path(mkdtemp()), print, lambda: False, True).population
    for cell in population.cells:
        cell.batches = RepeatedBatch(cell.batches)

    def run(steps: int) -> float:
        _settle()
        began = time.perf_counter()
        population.executor(population.cells, steps, lambda cell, batch: 0)
        _settle()
        return (time.perf_counter() - began) / steps

    return run


class RepeatedBatch(BatchStream):
    """The first batch of a stream for ever, as that of other steps: loading images is not what is measured."""

    def __init__(self, stream: BatchStream) -> None:
        self.first = next(stream)
        super().__init__(stream.source, stream.rows)

    def fetch_next(self) -> dict[str, Tensor]:
        return dict(self.first.tensors)  # on the device already

    def to_batch(self, tensors: dict[str, Tensor], num_streams: int = 1) -> Batch:
        rows = replace(self.rows, step=self.position, count=num_streams * self.rows.count)
        return Batch(rows, tensors)


def ratio(shape: str, steps: int, networks: str = NETWORKS) -> dict[str, float]:
    """Of the loop's time to the others', the median of rounds in turn, and ms of a step per cell."""
    kinds = ["loop", "stacked", *(["recorded"] if devices.num_accelerators() else [])]
    each = {kind: stepper(shape, kind, networks) for kind in kinds}
    for run in each.values():
        run(6)  # a recording begins with the third turn of its kind
    rounds = [{kind: run(steps) for kind, run in each.items()} for _ in range(ROUNDS)]
    rows, columns = map(int, shape.split("x"))
    found = {f"loop / {kind}": statistics.median(one["loop"] / one[kind] for one in rounds) for kind in kinds[1:]}
    per_cell = 1000 / (rows * columns)
    return found | {f"{kind}_ms_per_cell": per_cell * statistics.median(one[kind] for one in rounds) for kind in kinds}


def _settle() -> None:
    if devices.num_accelerators():
        torch.accelerator.synchronize()


def main(steps: int = 20) -> None:
    if not devices.num_accelerators():
        print("not run: no accelerator")
        return
    found: dict[str, dict[str, float]] = {}
    for shape, aim in AIMS.items():
        found[shape] = ratio(shape, steps)
        best = max(value for name, value in found[shape].items() if name.startswith("loop / "))
        print(f"{shape}: {best:.1f} times as fast, aim {aim:g}; {found[shape]}", flush=True)
    for shape in ("2x2", "4x4"):
        name = f"{shape}, DCGAN"
        found[name] = ratio(shape, steps, CONVOLUTIONS)
        print(f"{name}: {found[name]}", flush=True)
    found["16x16"] = {}
    for kind in ("stacked", "recorded"):
        large = stepper("16x16", kind)
        large(6)
        found["16x16"][f"{kind}_ms_per_cell"] = 1000 * large(steps) / 256
    print(f"16x16: {found['16x16']}")
    write("gpu-cells", {"batch": 100, "grids": found}, on=torch.cuda.get_device_name())


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
