"""Three kinds of collapse with and without `rollback`, and healthy runs, on the digits, with three seeds each.

    python -m benchmarks.rollback RUN … --keep FOLDER    train these runs (names below; each 1 to 2 CPU minutes)
    python -m benchmarks.rollback --keep FOLDER          compare all of them, and write the result

Finished runs stay in FOLDER. Scores are `fd[judge]` of the last step. A collapse has recovered if its score is at
most 10 % above the undisturbed one: that of the recipe with the same seed and length for `rate` and `poison`, and for
`overfit` the best along the same run when it is left alone, as if it had been stopped early.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.record import write
from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import DivergedError
from paragan.core.types import Batch
from paragan.engine.training_loop import TrainingLoop

METRIC = "fd[judge]"
LIMIT = 1.1
PERIODS = ("every.sample_kimg=2", "every.save_kimg=2", "every.score_kimg=4", "evaluation.num_images=2000")
HEALTHY = ("train.kimg=64", *PERIODS)
# D and G 20 times as fast as the recipe
RATE = (*HEALTHY, "g.optimizer.lr=2e-2", "d.optimizer.lr=2e-2")
# without labels, and with rates twice as large, D memorises 200 images within a run of this length
FEW = ("data={name: benchmarks.digits_subset, num_images: 200}", "model.conditional=false", "train.kimg=96")
OVERFIT = (*FEW, *PERIODS, "g.optimizer.lr=2e-3", "d.optimizer.lr=2e-3", "penalties=[]")
ON = ("rollback={}",)
POISONED = 350  # batch whose pixels are -10,000 times too large: one step of Adam, whose second moments then stop D
SEEDS = range(3)
KINDS = {
    "healthy": (*HEALTHY, *ON),
    "rate": (*RATE, *ON),
    "poison": (*HEALTHY, *ON),
    "overfit": (*OVERFIT, *ON),
    "overfit-alone": OVERFIT,
    "rate-alone": RATE,
    "poison-alone": HEALTHY,
}
ONE_SEED = ("rate-alone", "poison-alone")
RUNS: dict[str, tuple[str, ...]] = {
    f"{kind}-{seed}": (*settings, f"seed={seed}")
    for kind, settings in KINDS.items()
    for seed in (range(1) if kind in ONE_SEED else SEEDS)
}


class PoisonedBatches:
    """Batches of a run, of which one has pixels that a decoder should not return."""

    def __init__(self, batches: Any) -> None:
        object.__setattr__(self, "batches", batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batches, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.batches, name, value)

    def __iter__(self) -> PoisonedBatches:
        return self

    def __next__(self) -> Batch:
        batch = next(self.batches)
        if batch.rows.step != POISONED:
            return batch
        return replace(batch, tensors={**batch.tensors, "image": batch.image * -1e4})


def train(name: str, keep: Path) -> None:
    """Train a run to its end and store its scores and rollbacks."""
    shutil.rmtree(keep / name, ignore_errors=True)  # its best checkpoint would be this run's
    config = read_recipe("digits", list(RUNS[name]), outside=frozenset({"benchmarks.digits_subset"}))
    loop: TrainingLoop = build.trainer(config, keep / name, lambda text: None, lambda: False)
    if name.startswith("poison"):
        loop.batches = PoisonedBatches(loop.batches)
    began = time.process_time()
    scores: list[dict[str, float]] = []
    rollbacks: list[dict[str, Any]] = []
    end = "finished"
    try:
        for event in loop.run():
            if event.kind == "score":
                scores.append({"kimg": event.images / 1000, METRIC: event.values[METRIC]})
            if "rollback" in event.values:
                rollbacks.append({"kimg": event.images / 1000, **event.values["rollback"]})
    except DivergedError as error:
        end = str(error)
    seconds = round(time.process_time() - began, 1)
    found = {"settings": RUNS[name], "end": end, "cpu_s": seconds, "rollbacks": rollbacks, "scores": scores}
    (keep / f"{name}.json").write_text(json.dumps(found))
    print(
        f"{name}: {scores[-1][METRIC]:.4g} after {scores[-1]['kimg']:g} kimg, {seconds} s, {end}",
        *rollbacks,
        sep="\n  ",
    )


def compare(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return each collapse next to its undisturbed run, and the rollbacks of the healthy ones."""
    last = {name: run["scores"][-1][METRIC] for name, run in runs.items()}
    early = {name: min(score[METRIC] for score in run["scores"]) for name, run in runs.items()}
    undisturbed = {
        **{f"{kind}-{seed}": last.get(f"healthy-{seed}") for kind in ("rate", "poison") for seed in SEEDS},
        **{f"overfit-{seed}": early.get(f"overfit-alone-{seed}") for seed in SEEDS},
    }
    collapses = {
        name: {
            "undisturbed": value,
            "rolled back": last[name],
            "left alone": last.get(name.replace("-", "-alone-")),
            "ratio": last[name] / value,
            "within 10 %": last[name] <= LIMIT * value,
            "rollbacks": runs[name]["rollbacks"],
        }
        for name, value in undisturbed.items()
        if value is not None and name in runs
    }
    quiet = {name: len(run["rollbacks"]) for name, run in runs.items() if name.startswith("healthy")}
    return {"metric": METRIC, "collapses": collapses, "rollbacks of healthy runs": quiet, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", choices=[[], *RUNS])
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    for name in options.runs:
        train(name, options.keep)
    if not options.runs:
        files = {name: options.keep / f"{name}.json" for name in RUNS}
        found = compare({name: json.loads(file.read_text()) for name, file in files.items() if file.exists()})
        print(json.dumps({key: value for key, value in found.items() if key != "runs"}, indent=1))
        write("rollback", found)


if __name__ == "__main__":
    main()
