"""One-step generators from a flow: the teacher in 50 and in 1 steps, a GAN from scratch, and ours.

    python -m benchmarks.fewstep [digits] [cifar10] [--seeds 5] [--data FOLDER] [--keep FOLDER]
        [--set key.path=value ...] [--no-result]

For each seed: train `flow-NAME`, export it, train `fewstep-NAME` from it, the same recipe without initial weights, and
`dmd2-NAME` from the export where there is such a recipe.
The rows are scored by `paragan.evaluate` with one extractor and equal latents. Seconds are CPU seconds of this process,
on the threads of the recipes; those of the first run include the training of the judge. Finished runs stay in FOLDER,
so a table that was stopped resumes. --set: of all three trainings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import paragan as pg
from benchmarks.record import write
from paragan.core import registry
from paragan.runs.open_generator import open_generator

DATA = {"digits": {}, "cifar10": {"data.path": "/data/cifar10"}}
ROWS = ("teacher, 50 steps", "teacher, 1 step", "GAN from scratch, 1 step", "fewstep, 1 step")
DMD2 = "dmd2, 1 step"
DISTANCE = "fd"
ACCURACY = "label_accuracy"
FEW = 250  # images of the score at the end of a training, which is not used


def train(recipe: str, settings: Mapping[str, Any], folder: Path) -> float:
    """Train a run, or resume it; return the CPU seconds of all its sessions."""
    seconds = folder.with_suffix(".json")
    if seconds.exists():
        return float(json.loads(seconds.read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    copy_judge(folder.parent, folder)
    began = time.process_time()
    pg.train(recipe, dict(settings), out=folder)
    found = time.process_time() - began
    copy_judge(folder, folder.parent)
    seconds.write_text(json.dumps(found))
    return found


def copy_judge(source: Path, target: Path) -> None:
    """Copy the judge of a folder, if it has one and the other has none: one judge scores all runs."""
    if (source / "judge").exists() and not (target / "judge").exists():
        shutil.copytree(source / "judge", target / "judge")


def scored(folder: Path, steps: int | None, num_images: int) -> dict[str, float]:
    """Return the metrics of a run at a number of solver steps, from its file if it was scored before."""
    path = folder / f"fewstep-{steps}-{num_images}.json"
    if not path.exists():
        metrics = pg.evaluate(folder, num_images, steps=steps).score.metrics
        path.write_text(json.dumps(metrics))
    found: dict[str, float] = json.loads(path.read_text())
    return found


def exported(folder: Path) -> str:
    """Write the generator of a run as a file, if it is not there, and return its path."""
    from paragan.cli.export import export

    target = folder / "generator.safetensors"
    if not target.exists():
        export(folder, out=target)
    return str(target)


def one_seed(name: str, seed: int, settings: Mapping[str, Any], keep: Path, num_images: int) -> dict[str, Any]:
    """Return the metrics of all rows, and the CPU seconds of each training."""
    here = keep / name
    base = {"every.score_kimg": 0, "every.sample_kimg": 0, "evaluation.num_images": FEW, **settings, "seed": seed}
    teacher = here / f"flow-{seed}"
    seconds = {"flow": train(f"flow-{name}", base, teacher)}
    weights = exported(teacher)
    starts = {"g.init": weights, "d.init.path": weights}
    ours = here / f"fewstep-{seed}"
    seconds["fewstep"] = train(f"fewstep-{name}", {**base, **starts}, ours)
    scratch = here / f"scratch-{seed}"
    seconds["scratch"] = train(f"fewstep-{name}", {**base, "g.init": None, "d.init": None}, scratch)
    folders = ((teacher, 50), (teacher, 1), (scratch, None), (ours, None))
    rows = {row: scored(*given, num_images) for row, given in zip(ROWS, folders, strict=True)}
    if (recipe := f"dmd2-{name}") in registry.names("recipes"):
        matched = here / f"dmd2-{seed}"
        seconds["dmd2"] = train(recipe, {**base, **starts, **distribution_matching(recipe, weights)}, matched)
        rows[DMD2] = scored(matched, None, num_images)
    size = sum(weight.numel() for weight in open_generator(teacher).net.parameters())
    return {"seed": seed, "seconds": seconds, "rows": rows, "g_weights": size}


def distribution_matching(recipe: str, weights: str) -> dict[str, Any]:
    """Return the settings by which a recipe of DMD2 starts from a file of weights."""
    penalties = yaml.safe_load(registry.find_source("recipes", recipe).read_text())["penalties"]
    with_teacher = [{**one, "teacher": weights} if "teacher" in one else one for one in penalties]
    return {"penalties": with_teacher, "players.fake_score.init": weights}


def summary(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means of each row, and what must hold of one-step generators, by seed."""
    distance = next(key for key in seeds[0]["rows"][ROWS[0]] if key.startswith(DISTANCE))
    names = (distance, ACCURACY)
    rows = [row for row in (*ROWS, DMD2) if row in seeds[0]["rows"]]
    means = {row: {k: statistics.mean(s["rows"][row][k] for s in seeds) for k in names} for row in rows}
    fifty, one, scratch, *few = rows

    def ratios(row: str, other: str) -> list[float]:
        return [s["rows"][row][distance] / s["rows"][other][distance] for s in seeds]

    def held(row: str) -> dict[str, Any]:
        of_scratch = ratios(row, scratch)
        trainings = ("flow", row.partition(",")[0])
        return {
            "of teacher, 50 steps": ratios(row, fifty),
            "of teacher, 1 step": ratios(row, one),
            "of scratch": of_scratch,
            "accuracy": [seed["rows"][row][ACCURACY] for seed in seeds],
            "seeds_below_scratch": sum(value < 1 for value in of_scratch),
            "cpu_minutes_with_flow": [sum(seed["seconds"][k] for k in trainings) / 60 for seed in seeds],
        }

    return {"distance": distance, "means": means, **{row: held(row) for row in few}}


def main() -> None:
    """Print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=(*DATA, []), metavar="digits|cifar10")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--num-images", type=int, default=1000)
    parser.add_argument("--data", help="folder of CIFAR-10")
    parser.add_argument("--keep", type=Path, default=Path("runs/fewstep-benchmark"))
    parser.add_argument("--set", nargs="*", default=[], metavar="key.path=value")
    parser.add_argument("--no-result", action="store_true")
    given = parser.parse_args()
    for name in given.names or ["digits"]:
        settings = dict(DATA[name])
        if given.data and settings:
            settings["data.path"] = given.data
        settings |= {word.partition("=")[0]: json.loads(word.partition("=")[2]) for word in given.set}
        seeds = []
        for seed in range(given.seeds):
            seeds.append(one_seed(name, seed, settings, given.keep, given.num_images))
            print(json.dumps(seeds[-1]), flush=True)
        result = {"num_images": given.num_images, "settings": settings, "summary": summary(seeds), "seeds": seeds}
        print(json.dumps(result["summary"], indent=1))
        if not given.no_result:
            result["settings"] = {key: value for key, value in settings.items() if key != "data.path"}
            write(f"fewstep-{name}", result)


if __name__ == "__main__":
    main()
