"""Predicted and measured seconds of a step: 2 and 4 ranks with shaped links and injected jitter, from a profile of one.

The prediction is made first, from the profile of one worker and the figures of the link, which a probe measures between
as many ranks that compute; no parameter is fitted to the runs. Each update is made
`DEVICE_MS` longer, as on an accelerator, so that four ranks do not mostly wait for two cores, and
takes a lognormal factor. Needs root and `ip`; else it prints why it did not run.

python -m benchmarks.simulator_error [CASE ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.awake_cores import awake_cores, stolen_s
from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.extensions.planning.cluster import Cluster, Interconnect, Link
from paragan.extensions.planning.forecast import simulated_game_of
from paragan.extensions.planning.profile import Curve, RunProfile
from paragan.extensions.planning.profile_run import measure_profile
from paragan.extensions.planning.simulation import SimulatedTime
from tests.shaped_hosts import lacking, run_ranks, shaped_hosts

DEVICE_MS, JITTER, CORES = 60.0, 0.2, 2
STEPS, SIMULATED, LIMIT_S = 40, 2000, 400.0
RECIPES = {
    "digits": ("digits", ("every.sample_kimg=0",), "100mbit"),
    "mlp": ("vanilla-mnist", ("data.name=synthetic", "g.precision=fp32"), "100mbit"),
    "sngan": ("sngan-cifar10", ("data.name=synthetic", "g.precision=fp32", "d.precision=fp32"), "200mbit"),
}
HALF = ("g.strategy={name: local_sgd, every: 2}", "d.strategy={name: local_sgd, every: 2}")


@dataclass(frozen=True)
class Case:
    recipe: str
    ranks: int
    words: tuple[str, ...] = ()
    jitter: float = JITTER
    other_rate: str = ""

    @property
    def rate(self) -> str:
        """Of each link."""
        return self.other_rate or RECIPES[self.recipe][2]


CASES = {
    **{f"{name} ddp, {n} ranks": Case(name, n) for name in RECIPES for n in (2, 4)},
    **{f"digits ddp, {n} ranks, no jitter": Case("digits", n, jitter=0.0) for n in (2, 4)},
    **{f"digits H = 2, {n} ranks": Case("digits", n, HALF) for n in (2, 4)},
    **{f"digits asynchronous, {n} ranks": Case("digits", n, ("scheme.name=asynchronous",)) for n in (2, 4)},
    "digits asynchronous, H = 2, 4 ranks": Case("digits", 4, ("scheme.name=asynchronous", *HALF)),
    "digits preset paragan, 4 ranks": Case("digits", 4, ("preset=paragan",)),
    # four ranks on two cores need longer to send and receive here than such a link does
    **{f"mlp ddp, {n} ranks, 1 Gbit/s": Case("mlp", n, other_rate="1000mbit") for n in (2, 4)},
}


def probe(rate: str, ranks: int, folder: Path) -> Link:
    """Latency of a message and bytes per second, from all-reduces between so many hosts."""
    with shaped_hosts(ranks, rate) as hosts:
        text = run_ranks(hosts, ["-m", "benchmarks.link_probe"], folder / "probe", LIMIT_S)[0]
    times = json.loads(text.strip().splitlines()[-1])
    messages = 2 * (ranks - 1)  # a ring: one after the other, each an n-th of the bytes
    small, large = sorted(map(int, times))
    difference_s = times[str(large)] - times[str(small)]
    return Link(times[str(small)] / messages, messages / ranks * (large - small) / difference_s)


def with_device(profile: RunProfile, seconds: float) -> RunProfile:
    """The profile of a worker whose updates take so much longer, without a processor core."""

    def longer(curve: Curve, by: float) -> Curve:
        return replace(curve, values=tuple(value + by for value in curve.values))

    g = replace(profile.g, update_s=longer(profile.g.update_s, seconds))
    d = replace(profile.d, update_s=longer(profile.d.update_s, seconds))
    step_s = longer(profile.step_s, (profile.d_updates + 1) * seconds)
    alone_s = longer(profile.alone_step_s, (profile.d_updates + 1) * seconds)
    shares = [before / after for before, after in zip(profile.step_s.values, step_s.values, strict=True)]
    share = replace(profile.step_s, values=tuple(shares))
    return replace(profile, g=g, d=d, step_s=step_s, alone_step_s=alone_s, cpu_share=share)


def profile_of(name: str) -> RunProfile:
    recipe, words, _ = RECIPES[name]
    config = read_recipe(recipe, [*words, "evaluation.features=null"])
    batch = config.train.batch
    rows = [batch // 4, batch // 2, batch]
    return with_device(measure_profile(config, recipe, build.open_data(config), lambda b: 0, rows), DEVICE_MS / 1000)


def predicted(case: Case, profile: RunProfile, link: Link) -> float:
    """Mean seconds of a step, simulated."""
    recipe, words, _ = RECIPES[case.recipe]
    config = read_recipe(recipe, [*words, "evaluation.features=null", *case.words])
    network = Interconnect(inside=link, between=link, workers_per_host=case.ranks)
    cluster = Cluster(workers=case.ranks, network=network, cores=CORES, jitter=case.jitter)
    ends = SimulatedTime(game=simulated_game_of(config, profile), cluster=cluster).run(SIMULATED)
    return float(np.diff(ends)[20:].mean())


def measured(case: Case, folder: Path) -> float:
    """Mean seconds of a step of the slowest rank."""
    recipe, words, _ = RECIPES[case.recipe]
    program = ["-m", "benchmarks.simulated_ranks", recipe, str(STEPS), str(DEVICE_MS), str(case.jitter)]
    with shaped_hosts(case.ranks, case.rate) as hosts:
        texts = run_ranks(hosts, [*program, *words, *case.words], folder, LIMIT_S)
    return max(json.loads(text.strip().splitlines()[-1])["step_s"] for text in texts)


def sensitivity(case: Case, profile: RunProfile, link: Link) -> dict[str, float]:
    """Change of the prediction, in per cent, for figures that are a fifth larger."""
    base = predicted(case, profile, link)
    slower = replace(link, bytes_per_s=link.bytes_per_s / 1.2)
    later = replace(link, latency_s=link.latency_s * 1.2)
    uneven = replace(case, jitter=case.jitter * 1.2)
    changed = {
        "seconds per byte": predicted(case, profile, slower),
        "latency": predicted(case, profile, later),
        "updates": predicted(case, _slower(profile), link),
        "jitter": predicted(uneven, profile, link),
    }
    return {name: round(100 * (value / base - 1), 2) for name, value in changed.items()}


def _slower(profile: RunProfile) -> RunProfile:
    """The profile with computation that takes a fifth longer."""
    g = replace(profile.g, update_s=_times(profile.g.update_s, 1.2))
    d = replace(profile.d, update_s=_times(profile.d.update_s, 1.2))
    times = {name: _times(getattr(profile, name), 1.2) for name in ("step_s", "alone_step_s")}
    return replace(profile, g=g, d=d, **times)


def _times(curve: Curve, by: float) -> Curve:
    return replace(curve, values=tuple(value * by for value in curve.values))


def row_of(case: Case, profile: RunProfile, link: Link, folder: Path) -> dict[str, object]:
    """Prediction, measurement and sensitivity of a case."""
    forecast_s = predicted(case, profile, link)
    began = time.monotonic()
    stolen = stolen_s()
    found_s = measured(case, folder)
    stolen = (stolen_s() - stolen) / (time.monotonic() - began) / CORES
    return {
        "predicted_ms": round(1000 * forecast_s, 2),
        "measured_ms": round(1000 * found_s, 2),
        "error": round(forecast_s / found_s - 1, 4),
        "stolen_share": round(stolen, 3),
        "sensitivity": sensitivity(case, profile, link),
    }


def measure(chosen: Mapping[str, Case], folder: Path) -> dict[str, object]:
    """Probe links, profile recipes, and compare predictions with runs."""
    wanted = {(case.rate, case.ranks) for case in chosen.values()}
    links = {(rate, ranks): probe(rate, ranks, folder / f"{rate}-{ranks}") for rate, ranks in sorted(wanted)}
    profiles = {recipe: profile_of(recipe) for recipe in dict.fromkeys(case.recipe for case in chosen.values())}
    rows = {}
    for name, case in chosen.items():
        row = row_of(case, profiles[case.recipe], links[case.rate, case.ranks], folder / f"run-{len(rows)}")
        rows[name] = row
        print(f"{name}: {row['predicted_ms']} ms predicted, {row['measured_ms']} ms measured, {row['error']:+.1%}")
    figures = {}
    for (rate, ranks), link in links.items():
        figures[f"{rate}, {ranks} ranks"] = {
            "latency_us": 1e6 * link.latency_s,
            "mbit_per_s": link.bytes_per_s * 8e-6,
        }
    return {"links": figures, "rows": rows}


def main(names: Sequence[str]) -> None:
    if reason := lacking():
        print(f"not run: {reason}")
        return
    torch.set_num_threads(1)
    chosen = {name: case for name, case in CASES.items() if not names or name in names}
    longer = f"each update {DEVICE_MS:g} ms longer"
    with tempfile.TemporaryDirectory() as name, awake_cores() as cores:
        found = measure(chosen, Path(name))
    note = f"{longer}, lognormal factor of sigma {JITTER:g}; wall seconds; {cores}"
    write("simulator-error", {"note": note, **found})


if __name__ == "__main__":
    main(sys.argv[1:])
