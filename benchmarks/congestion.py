"""Loading from congested storage: the controller, fixed settings, and other loaders, on the same shards and proxy.

python -m benchmarks.congestion [RECIPE …]

The proxy delays each request by a log-normal time (median 50 ms, sigma 0.5), ten times longer in the last 5 s of every
20 s. Three consumers take batches as their recipe does (size of images, seconds of a step) and do nothing else; a
batch has fewer images than the recipe's, so that two cores can serve the requests. Each sample is one range request, in
a random order, by one function for all loaders; webdataset streams whole shards, which is what it does.
`fixed` is the smallest setting within 1 % of the fastest one in a quiet phase (8 s each); torch's workers are
chosen in the same way. They are measured in turns. `stalls` is the share of the time that
the consumer waited. `memory` is the peak of its proportional set size with its worker processes, less what it was
before the first batch. `fixed, tuned for bursts` holds the controller's limits all the time: what a controller saves.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.congestion_loaders import consume
from benchmarks.congestion_shards import write_shards
from benchmarks.record import write

RECIPES = {  # height of images, images in a batch, seconds of a step
    "sngan-cifar10": (32, 16, 0.2),
    "dcgan-64": (64, 16, 0.25),
    "biggan-128": (128, 32, 0.5),
}
SIGMA = 0.5
MEDIAN_MS = 50
BURST = {"burst_factor": 10, "burst_s": 5, "period_s": 20}
SEARCH_S = 8
QUIET_S = 16
BURSTS_S = 60
REPEATS = 3
MAX_MB = 64
FIXED = [{"loader": "paragan", "readers": readers, "depth": depth} for readers in (3, 4, 6, 8, 12) for depth in (2, 4)]
WORKERS = [{"loader": "torch", "workers": workers} for workers in (4, 8)]


class Proxy:
    """The emulator as a process."""

    def __init__(self, folder: Path, **conditions: float) -> None:
        words = [f"{name}={value}" for name, value in conditions.items()]
        command = [sys.executable, "-m", "benchmarks.storage_emulator", str(folder), *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()

    def restart(self) -> None:
        """Begin the first period."""
        assert self._process.stdin
        self._process.stdin.write("restart\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(proxy: Proxy, recipe: str, seconds: float, setting: dict[str, Any]) -> dict[str, Any]:
    """Consume batches of one loader at the pace of a recipe."""
    _, batch, step_s = RECIPES[recipe]
    asked = {"url": proxy.url, "batch": batch, "step_s": step_s, "seconds": seconds, "max_mb": MAX_MB, **setting}
    found = consume(asked, proxy.restart)
    print(recipe, json.dumps({**setting, **{key: value for key, value in found.items() if key != "sizes"}}), flush=True)
    return found


def search(proxy: Proxy, recipe: str, settings: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first setting within 1 % of the fastest in the quiet phase, and all rates."""
    tried = [setting | {"images_per_s": rate(measure(proxy, recipe, SEARCH_S, setting))} for setting in settings]
    fastest = max(one["images_per_s"] for one in tried)
    first = next(s for s, one in zip(settings, tried, strict=True) if one["images_per_s"] >= 0.99 * fastest)
    return first, tried


def rate(found: dict[str, Any]) -> float:
    return found["images_per_s"]


def measure_recipe(folder: Path, recipe: str) -> dict[str, Any]:
    """Search the fixed settings, then measure all loaders in turns."""
    height, batch, step_s = RECIPES[recipe]
    calm = Proxy(folder, latency_ms=MEDIAN_MS, sigma=SIGMA)
    congested = Proxy(folder, latency_ms=MEDIAN_MS, sigma=SIGMA, **BURST)
    best, tried = search(calm, recipe, FIXED)
    workers, tried_workers = search(calm, recipe, WORKERS)
    both = {"controller": {"loader": "paragan"}, "fixed": best}
    others = {
        "fixed, tuned for bursts": {"loader": "paragan", "readers": 64, "depth": 20},
        "torch DataLoader": workers,
        "torchdata StatefulDataLoader": workers | {"loader": "torchdata"},
        "webdataset": workers | {"loader": "webdataset"},
    }
    bursts: dict[str, list[dict[str, Any]]] = {name: [] for name in both | others}
    quiet: dict[str, list[dict[str, Any]]] = {name: [] for name in both}
    for number in range(REPEATS):
        for name, setting in (both | others if number == 0 else both).items():
            if setting["loader"] in ("torchdata", "webdataset") and find_spec(setting["loader"]) is None:
                print(f"{setting['loader']} is not installed; skipped")
                continue
            bursts[name].append(measure(congested, recipe, BURSTS_S, setting))
        for name in quiet:
            quiet[name].append(measure(calm, recipe, QUIET_S, both[name]))
    calm.end()
    congested.end()
    return {
        "image": height,
        "batch": batch,
        "step_s": step_s,
        "consumer_limit_images_per_s": batch / step_s,
        "fixed_setting": best,
        "fixed_search": tried,
        "workers_search": tried_workers,
        "bursts": bursts,
        "quiet": quiet,
        "summary": summary(bursts) | {"quiet": summary(quiet)},
        "ratios": ratios(bursts, quiet),
    }


def summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians by loader."""
    return {
        name: {
            key: round(statistics.median(one[key] for one in runs), 3)
            for key in ("images_per_s", "stalls", "memory_mb")
        }
        for name, runs in found.items()
        if runs
    }


def ratios(bursts: dict[str, list[dict[str, Any]]], quiet: dict[str, list[dict[str, Any]]]) -> dict[str, list[float]]:
    """Images per second of the controller over those of the fixed setting, of each pair."""
    return {
        name: [round(rate(a) / rate(b), 3) for a, b in zip(found["controller"], found["fixed"], strict=True)]
        for name, found in (("bursts", bursts), ("quiet", quiet))
    }


def main(*recipes: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for recipe in recipes or RECIPES:
            write_shards(folder / recipe, RECIPES[recipe][0])
            found = measure_recipe(folder / recipe, recipe)
            write(f"congestion-{recipe}", {"note": __doc__, "load": os.getloadavg()[0], **found})


if __name__ == "__main__":
    main(*sys.argv[1:])
