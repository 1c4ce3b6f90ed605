"""Variants of `fewstep-digits` from one teacher: D without noise (APT), the teacher's images (ADD), four steps.

    python -m benchmarks.fewstep_variants [--seeds 3] [--keep FOLDER] [--set key.path=value ...] [--no-result]

Each seed trains `flow-digits`, exports it, and trains every variant from it. All are scored with equal latents, as in
`benchmarks.fewstep`, whose folders are used and continued.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fewstep import ACCURACY, DISTANCE, FEW, exported, scored, train
from benchmarks.record import write
from paragan.core import registry

TEACHER = {"teacher, 50 steps": 50, "teacher, 4 steps": 4, "teacher, 1 step": 1}


def variants(weights: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each variant. weights: file of the teacher."""
    penalties = yaml.safe_load(registry.find_source("recipes", "fewstep-digits").read_text())["penalties"]
    distillation = {"name": "distillation", "weight": 0.5, "teacher": weights}
    return {
        "GAN alone": {},
        "averaged over 1 kimg": {"g.ema.half_life_kimg": 1, "g.ema.ramp": 0.1},
        "without noise (APT)": {"augment.noise": False},
        "with the teacher's images (ADD)": {"penalties": [*penalties, distillation]},
        "GAN alone, 4 steps": {"model.steps": 4},
    }


def one_seed(seed: int, settings: Mapping[str, Any], keep: Path, num_images: int) -> dict[str, Any]:
    """Return the metrics of the teacher and of all variants, and the CPU seconds of each training."""
    here = keep / "digits"
    base = {"every.score_kimg": 0, "every.sample_kimg": 0, "evaluation.num_images": FEW, **settings, "seed": seed}
    teacher = here / f"flow-{seed}"
    seconds = {"teacher": train("flow-digits", base, teacher)}
    weights = exported(teacher)
    rows = {row: scored(teacher, steps, num_images) for row, steps in TEACHER.items()}
    for number, (name, chosen) in enumerate(variants(weights).items()):
        folder = here / (f"variant{number}-{seed}" if number else f"fewstep-{seed}")
        seconds[name] = train("fewstep-digits", {**base, "g.init": weights, "d.init.path": weights, **chosen}, folder)
        rows[name] = scored(folder, None, num_images)
    return {"seed": seed, "seconds": seconds, "rows": rows}


def main() -> None:
    """Print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-images", type=int, default=1000)
    parser.add_argument("--keep", type=Path, default=Path("runs/fewstep-benchmark"))
    parser.add_argument("--set", nargs="*", default=[], metavar="key.path=value")
    parser.add_argument("--no-result", action="store_true")
    given = parser.parse_args()
    settings = {word.partition("=")[0]: json.loads(word.partition("=")[2]) for word in given.set}
    seeds = []
    for seed in range(given.seeds):
        seeds.append(one_seed(seed, settings, given.keep, given.num_images))
        print(json.dumps(seeds[-1]), flush=True)
    rows = seeds[0]["rows"]
    distance = next(key for key in rows["GAN alone"] if key.startswith(DISTANCE))
    means = {
        row: {key: statistics.mean(seed["rows"][row][key] for seed in seeds) for key in (distance, ACCURACY)}
        for row in rows
    }
    print(json.dumps(means, indent=1))
    if not given.no_result:
        write(
            "fewstep-variants", {"num_images": given.num_images, "settings": settings, "means": means, "seeds": seeds}
        )


if __name__ == "__main__":
    main()
