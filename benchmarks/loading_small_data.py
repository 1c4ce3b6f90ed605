"""CPU cost of the loading stages on small data in memory: batches of this tree and of an earlier one.

python -m benchmarks.loading_small_data EARLIER_SRC MNIST [--pairs 15]

EARLIER_SRC: the folder `src` of a checkout, for example of the commit before the stages. MNIST: the folder of the data
set. Each process takes 3,000 batches of `digits`, or 300 joined batches of the 9 cells of `cellular-mnist`, at one
thread; the two processes of a pair run in turns. `step_us` is the CPU time of a training step (of all cells), with its
batch; `share_of_step` is the median of (now - before) / step, and its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import paragan
from benchmarks.record import write

MEASURE = """
import sys, tempfile, time
from pathlib import Path
import torch
from paragan import build
from paragan.extensions.grid.build.trainer import GridFactory, evolution
from paragan.config import read_recipe
from paragan.extensions.grid.executors.inputs import joint_batches

def cpu_us(work, count):
    work()
    began = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - began) / count * 1e6

torch.set_num_threads(1)
folder = Path(tempfile.mkdtemp())
quiet = [f"every.{name}_kimg=0" for name in ("sample", "save", "score")]
config = read_recipe(sys.argv[1], ["train.threads=1", "evaluation.features=null", *quiet, *sys.argv[2:]])
if config.grid is None:
    trainer = build.trainer(config, folder, print, lambda: False)
    batch_us = cpu_us(lambda: next(trainer.batches), 3000)
    num_steps = 50
else:
    factory = GridFactory(config, folder, print)
    streams = joint_batches([factory.cell(number).batches for number in range(factory.options.num_cells)])
    batch_us = cpu_us(lambda: next(streams), 300)
    trainer = evolution(config, folder, print, lambda: False)
    num_steps = factory.options.batches
began = time.process_time()
for _ in trainer.run():
    pass
print(batch_us, (time.process_time() - began) / num_steps * 1e6)
"""


def measure(src: Path, recipe: str, settings: tuple[str, ...]) -> np.ndarray:
    """CPU microseconds of a batch and of a step, in a process that imports this `src`."""
    environment = {**os.environ, "PYTHONPATH": str(src), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURE, recipe, *settings]
    return np.array(subprocess.check_output(command, env=environment, text=True).split()[-2:], float)


def compare(earlier: Path, recipe: str, settings: tuple[str, ...], pairs: int) -> dict[str, Any]:
    """Medians of both trees, and of the difference of a pair as a share of a step."""
    now = Path(paragan.__file__).parents[1]
    found = np.array([[measure(src, recipe, settings) for src in (earlier, now)] for _ in range(pairs)])
    batches = found[:, :, 0]
    step = np.median(found[:, :, 1])
    shares = (batches[:, 1] - batches[:, 0]) / step
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(list(shares), k=pairs)) for _ in range(2000))
    return {
        "before_us": round(float(np.median(batches[:, 0])), 1),
        "now_us": round(float(np.median(batches[:, 1])), 1),
        "step_us": round(float(step), 1),
        "share_of_step": [round(value, 5) for value in map(float, (np.median(shares), medians[50], medians[1949]))],
        "pairs": pairs,
    }


def main() -> None:
    """Measure both recipes, and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("earlier", type=Path)
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    digits = ("train.kimg=3.2", "train.batch=64")
    cellular = (f"data.path={options.mnist}", "train.kimg=10")
    found = {
        "digits": compare(options.earlier, "digits", digits, options.pairs),
        "cellular-mnist": compare(options.earlier, "cellular-mnist", cellular, options.pairs),
    }
    print(found)
    write("loading-small-data", {"note": __doc__, "load": os.getloadavg()[0], **found})


if __name__ == "__main__":
    main()
