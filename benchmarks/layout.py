"""Loader and layout together, on a case like that of ParaGAN's poster: uneven channels and congested storage.

    python -m benchmarks.layout [--rounds 1] [--seconds 20]

SNGAN of CIFAR-10 with 37 channels, batch 16. `compute` is the time of its steps at one thread, in pairs: contiguous
networks in their plain layout against what the advisor chooses, memory format included. The other rows take batches
of images that the proxy of `benchmarks.congestion` delays (50 ms, ten times that in 5 s of every 20 s), and wait for
the CPU seconds of a step, so that other load on the machine changes neither. `naive` has a loader of a fixed setting
and the naive step, `loader` the congestion-aware controller, `layout` the advised step, `both` both. Images per second
of wall clock, in turns; aim: both / naive >= 1.3. Rounds of one day are added to one file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

from benchmarks.congestion import BURST, MAX_MB, MEDIAN_MS, SIGMA, Proxy
from benchmarks.congestion_loaders import consume
from benchmarks.congestion_shards import write_shards
from benchmarks.paired_timing import compare
from benchmarks.record import RESULTS, write
from paragan.config import RunConfig, read_recipe
from paragan.core.dist import ALONE
from paragan.runs.layout_trial import find_layout
from paragan.runs.trial_steps import TrialRun

NAME = "layout"
BATCH = 16
WORDS = (
    *("data=synthetic", "data.size=32", "model.width=37", f"train.batch={BATCH}", "train.threads=1"),
    *("d.updates_per_step=1", "g.precision=fp32", "d.precision=fp32"),
)
# as `benchmarks.congestion` finds for 64 images/s; the steps here take less
FIXED = {"readers": 6, "depth": 4}
ROWS = {"naive": (True, False), "loader": (False, False), "layout": (True, True), "both": (False, True)}


def configs() -> tuple[RunConfig, RunConfig, TrialRun]:
    """The naive and the advised config, and the trial that runs them."""
    torch.set_num_threads(1)
    open_config = read_recipe("sngan-cifar10", WORDS)
    trial = TrialRun(open_config, ALONE, None)
    advised = find_layout(trial, open_config, print).config
    players = {"g": replace(open_config.g, channels_last=False), "d": replace(open_config.d, channels_last=False)}
    return replace(open_config, **players), advised, trial


def measure_round(proxy: Proxy, step_s: dict[bool, float], seconds: float) -> dict[str, Any]:
    """Images per second of all rows, in turns."""
    found = {}
    for name, (is_fixed, is_advised) in ROWS.items():
        asked: dict[str, Any] = {"url": proxy.url, "loader": "paragan", "batch": BATCH, "seconds": seconds}
        asked |= {"max_mb": MAX_MB, "step_s": step_s[is_advised], **(FIXED if is_fixed else {})}
        row = consume(asked, proxy.restart)
        found[name] = {key: round(row[key], 3) for key in ("images_per_s", "stalls")}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    path = RESULTS / f"{date.today().isoformat()}-{NAME}.json"
    before = json.loads(path.read_text()) if path.exists() else {"rounds": [], "compute": []}
    rounds = before["rounds"]
    computed = before["compute"]
    naive, advised, trial = configs()
    compute = compare(trial.stepper(naive), trial.stepper(advised), 15)
    step_s = {False: compute.a_seconds, True: compute.b_seconds}
    with tempfile.TemporaryDirectory() as name:
        write_shards(Path(name) / "shards", 32)
        proxy = Proxy(Path(name) / "shards", latency_ms=MEDIAN_MS, sigma=SIGMA, **BURST)
        for _ in range(arguments.rounds):
            rounds.append(measure_round(proxy, step_s, arguments.seconds))
        proxy.end()
    ratios = {
        row: [round(one[row]["images_per_s"] / one["naive"]["images_per_s"], 3) for one in rounds]
        for row in ("loader", "layout", "both")
    }
    medians = {row: statistics.median(values) for row, values in ratios.items()}
    print(medians, compute)
    about = {"note": __doc__, "compute": [*computed, asdict(compute)], "fixed": FIXED}
    write(NAME, {**about, "medians": medians, "ratios": ratios, "rounds": rounds})


if __name__ == "__main__":
    main()
