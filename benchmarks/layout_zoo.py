"""Steps of the advised networks against the plain ones, for each model of the zoo at a small size.

    python -m benchmarks.layout_zoo [--pairs 15] [RECIPE …]

Aim: none is more than 2 % slower. Where the advisor stays with the plain networks, both sides of a pair are equal, and
the ratio is the noise of the method. CPU seconds at one thread, pair by pair, on three games built anew for each side:
the same game built twice differs by some per cent. Results of one day are added to one file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from datetime import date
from typing import Any

import torch

from benchmarks.paired_timing import compare
from benchmarks.record import RESULTS, write
from benchmarks.step import Images
from paragan import build
from paragan.config import RunConfig, read_recipe
from paragan.core.dist import ALONE
from paragan.runs import layout_trial
from paragan.runs.trial_steps import TrialRun

NAME = "layout-zoo"
GAMES = 3
SYNTHETIC = ("data=synthetic", "data.size=32")
SPEECH = ("data.utterances=4", "data.segment=2048")
SMALL: dict[str, tuple[str, ...]] = {
    "vanilla-mnist": ("data=digits", "train.batch=64"),
    "digits": ("train.batch=64",),
    "sngan-cifar10": (*SYNTHETIC, "model.width=24", "train.batch=16"),
    "sagan-cifar10": (*SYNTHETIC, "model.width=24", "train.batch=16"),
    "biggan-cifar10": (*SYNTHETIC, "model.width=16", "train.batch=16"),
    "biggan-deep-cifar10": (*SYNTHETIC, "model.width=16", "train.batch=16"),
    "contragan-cifar10": (*SYNTHETIC, "model.width=16", "train.batch=16"),
    "reacgan-cifar10": (*SYNTHETIC, "model.width=16", "train.batch=16"),
    "stylegan2-cifar10": (*SYNTHETIC, "model.width=16", "train.batch=8"),
    "r3gan-cifar10": (*SYNTHETIC, "model.width=16", "model.groups=4", "train.batch=8"),
    "pix2pix-facades": ("data.path=nowhere", "model.width=8"),
    "vqgan-cifar10": ("data=digits", "model.width=16", "train.batch=8"),
    "vocoder": (*SPEECH, "train.batch=4"),
    "codec": (*SPEECH, "train.batch=4"),
}


def config_of(recipe: str) -> RunConfig:
    """A recipe at its small size, one update of D in a step."""
    always = ("train.threads=1", "d.updates_per_step=1", "train.layout=fixed")
    return read_recipe(recipe, [*SMALL[recipe], *always])


def trial_of(recipe: str, config: RunConfig) -> TrialRun:
    """Its trial; pix2pix has pairs without files."""
    data = None
    if recipe == "pix2pix-facades":
        source: Any = Images((3, 64, 64), (), True)
        data = build.Data(source, source)
    return TrialRun(config, ALONE, None, data)


def measured(recipe: str, pairs: int) -> dict[str, Any]:
    """What the advisor chooses, and the ratio of its steps to plain ones."""
    torch.set_num_threads(1)
    config = config_of(recipe)
    trial = trial_of(recipe, config)
    found = layout_trial.find_layout(trial, config, print)
    each = pairs // GAMES
    ratios = [compare(trial.stepper(found.config), trial.stepper(config), each, warm_up=3) for _ in range(GAMES)]
    settings = {key: str(value) for key, value in found.plan.settings.items()}
    medians = [round(ratio.median, 4) for ratio in ratios]
    print(f"{recipe}: advised / plain {medians}, {settings or 'plain'}", flush=True)
    return {
        "advised_over_plain": statistics.median(medians),
        "by_game": medians,
        "is_plain": not settings,
        "plain_s": statistics.median(ratio.b_seconds for ratio in ratios),
        "pairs": each * GAMES,
        "settings": settings,
        "trials": list(found.plan.trials),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    path = RESULTS / f"{date.today().isoformat()}-{NAME}.json"
    found = json.loads(path.read_text())["recipes"] if path.exists() else {}
    for recipe in arguments.recipes or SMALL:
        found[recipe] = measured(recipe, arguments.pairs)
        changed = [one["advised_over_plain"] for one in found.values() if not one["is_plain"]]
        about = {"threads": 1, "note": __doc__, "num_plain": len(found) - len(changed)}
        write(NAME, {**about, "slowest_changed": max(changed, default=None), "recipes": found})


if __name__ == "__main__":
    sys.exit(main())
