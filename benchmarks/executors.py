"""What `train.executor=auto` chooses against every fixed choice. Aim: none is more than 5 % faster.

    python -m benchmarks.executors [pairs] [RECIPE] [compile]

Steps of the recipe's batch at one thread, pair by pair; compile: also what is compiled, which takes minutes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.pairs import Ratio, compare, keep
from paragan.config import load
from paragan.core.dist import ALONE
from paragan.runs import executors
from paragan.runs.executors import name_of, ways
from paragan.runs.measured import Bench


def main(pairs: int = 15, recipe: str = "digits", compiled: bool = False) -> dict[str, Ratio]:
    torch.set_num_threads(1)
    config = load(recipe, ["train.executor=auto", "train.threads=1"])
    bench = Bench(config, ALONE, None)
    plain = replace(config, train=replace(config.train, executor="eager"))
    fixed = list(ways(plain, bench.device, bench.networks()))
    if compiled:
        executors.WORTH_S = 0.0
        fixed += [replace(way, train=replace(way.train, executor="compile")) for way in fixed]
    with TemporaryDirectory() as folder:
        auto = executors.chosen(config, Path(folder), False, ALONE, print)
    step = bench.stepper(auto)
    results = {
        f"{recipe}: {name_of(way)} / auto ({name_of(auto)})": compare(bench.stepper(way), step, pairs, warm_up=4)
        for way in fixed
    }
    keep(f"executors-{recipe}", results, f"batch {config.train.batch}, one step per call")
    return results


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]), *sys.argv[2:3], *(word == "compile" for word in sys.argv[3:4]))
