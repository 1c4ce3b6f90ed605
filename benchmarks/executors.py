"""What `train.executor=auto` chooses against every fixed choice. Aim: none is more than 5 % faster.

    python -m benchmarks.executors [--pairs 15] [--compile] [RECIPE] [KEY=VALUE …]

Steps of the recipe's batch at one thread, pair by pair; --compile: also what is compiled, which takes minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.paired_timing import Ratio, compare, keep
from paragan.config import read_recipe
from paragan.core.dist import ALONE
from paragan.runs import choose_executor
from paragan.runs.choose_executor import candidates, name_of
from paragan.runs.trial_steps import TrialRun


def measured(pairs: int, recipe: str, words: Sequence[str] = (), compiled: bool = False) -> dict[str, Ratio]:
    torch.set_num_threads(1)
    config = read_recipe(recipe, [*words, "train.executor=auto", "train.threads=1"])
    bench = TrialRun(config, ALONE, None)
    plain = replace(config, train=replace(config.train, executor="eager"))
    fixed = list(candidates(plain, bench.device, bench.networks()))
    if compiled:
        choose_executor.WORTH_S = 0.0
        fixed += [replace(way, train=replace(way.train, executor="compile")) for way in fixed]
    with TemporaryDirectory() as folder:
        auto = choose_executor.choose_executor(config, Path(folder), False, ALONE, print)
    step = bench.stepper(auto)
    return {
        f"{recipe}: {name_of(way)} / auto ({name_of(auto)})": compare(bench.stepper(way), step, pairs, warm_up=4)
        for way in fixed
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="digits")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    results = measured(arguments.pairs, arguments.recipe, arguments.words, arguments.compile)
    keep(f"executors-{arguments.recipe}", results, "one step of the recipe's batch per call")


if __name__ == "__main__":
    main()
