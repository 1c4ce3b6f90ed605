"""What coevolution buys on MNIST: a 3x3 grid against nine GANs that never meet, at equal updates.

    python -m benchmarks.cellular_mnist DATA [--seeds 3] [--kimg 100] [--out DIR] [--only ARMS] [--no-result]

DATA is the folder of MNIST's idx files. Every run is one of `paragan train` with the recipe `cellular-mnist`, one core,
in a folder under DIR: the same command goes on where it was stopped, and plays nothing again. Set OMP_NUM_THREADS=1.

The arms differ in what `ARMS` says and in nothing else: nine pairs of the same networks, from the same initial weights,
on the same batches in the same order, each updated equally often (`refuse_unequal` looks). `independent` is what a
person does who trains nine plain GANs with seeds of their own: no cell sees another, no learning rate moves, what was
trained is kept.

Whatever has to be chosen, of a population or of nine GANs, is chosen by the same yardstick on as many images
(`cellular_mnist_scores`); everything is then scored on 10,000 images from other latents.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import cellular_mnist_plots as plots
from benchmarks.cellular_mnist_scores import scored
from benchmarks.cellular_mnist_summary import Runs, course, spent, summed
from benchmarks.record import write

_ALONE = ("grid.radius=0", "grid.tournament=0", "grid.replacement=always", "grid.rates.probability=0")
ARMS: Mapping[str, Sequence[str]] = {
    "lipizzaner": ("preset=lipizzaner",),
    "independent": _ALONE,
    "mustangs": ("preset=mustangs",),
    "selection": ("preset=lipizzaner", "grid.replacement=always", "grid.rates.probability=0"),  # and exchange; no more
}


@dataclass(frozen=True)
class Study:
    """out: of all runs. words: more of the config, for every arm."""

    kimg: float
    out: Path
    words: tuple[str, ...] = ()
    recipe: str = "cellular-mnist"

    def config(self, arm: str, seed: int) -> list[str]:
        """The words of one run over the recipe."""
        always = (f"seed={seed}", f"train.kimg={self.kimg:g}", "grid.executor=loop")
        return [self.recipe, *self.words, *ARMS[arm], *always]


def kept(study: Study, arm: str, seed: int) -> dict[str, Any]:
    """The run of this arm and seed: the one that is there, if it is as long."""
    folder = study.out / f"{arm}-{seed}"
    path = folder.with_suffix(".json")
    if path.is_file():
        there = json.loads(path.read_text())
        if there["config"] == study.config(arm, seed):
            return dict(there)
    _train(study.config(arm, seed), folder)
    run = {"config": study.config(arm, seed), **scored(folder), "course": course(folder), "spent": spent(folder)}
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(run))
    unfinished.rename(path)
    print(f"{arm}, seed {seed}: {_shown(run)}", flush=True)
    return run


def _train(words: Sequence[str], folder: Path) -> None:
    """From the start or from the newest checkpoint to the end. What it says is in FOLDER.log."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "paragan", "train", *words, "--out", str(folder)]
    with open(f"{folder}.log", "a") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT).returncode
    if code:
        raise SystemExit(f"{folder}: found the exit code {code}, expected 0; see {folder}.log")


def _shown(run: Mapping[str, Any]) -> str:
    fd = ", ".join(f"{name} {value:.2f}" for name, value in run["fd"].items())
    return f"{fd}; {run['spent']['cpu_s']:.0f} CPU s, {run['spent']['wall_s']:.0f} s"


def measured(study: Study, arms: Sequence[str], seeds: int) -> Runs:
    """All runs, seed by seed, so that a study that is cut short has as many of every arm."""
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for seed in range(seeds):
        for arm in arms:
            runs[arm].append(kept(study, arm, seed))
    return runs


def refuse_unequal(runs: Runs) -> None:
    """Updates of each player of each cell are those of the first arm's. SystemExit where they are not."""
    found = {arm: run["updates"] for arm, of in runs.items() for run in of}
    first = next(iter(found))
    other = next((arm for arm, updates in found.items() if updates != found[first]), None)
    if other is not None:
        raise SystemExit(f"updates: found {found[other]} in {other}, expected those of {first}, {found[first]}")


def print_results(found: Mapping[str, Any]) -> None:
    """The tables on the console, as the page has them."""
    print(f"\n| arm | what | {' | '.join(f'seed {seed}' for seed in range(found['seeds']))} | mean |")
    print("|---|---|" + "---:|" * (found["seeds"] + 1))
    for arm, row in found["arms"].items():
        for what, values in row["fd"].items():
            print(f"| {arm} | {what} | {' | '.join(f'{v:.2f}' for v in values['seeds'])} | {values['mean']:.2f} |")
    for name, pair in found["paired"].items():
        each = ", ".join(f"{value:+.2f}" for value in pair["seeds"])
        print(f"{name}: {pair['mean']:+.2f} ± {pair['half']:.2f} ({each})")
    for arm, row in found["arms"].items():
        print(f"{arm}: {row['spent']}; {row['end']}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cellular_mnist")
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kimg", type=float, default=100.0, help="of one cell's D")
    parser.add_argument("--out", type=Path, default=Path("/tmp/paragan-cellular-mnist"))
    parser.add_argument("--only", default=",".join(ARMS), help="arms, parted by commas")
    parser.add_argument("--no-result", action="store_true", help="print, and write nothing")
    given = parser.parse_args(words)
    arms = [arm for arm in given.only.split(",") if arm]
    if unknown := set(arms) - set(ARMS):
        parser.error(f"--only: found {', '.join(sorted(unknown))}, expected some of {', '.join(ARMS)}")
    torch.set_num_threads(1)
    study = Study(given.kimg, given.out, (f"data.path={given.data}", "evaluation.features=mnist"))
    runs = measured(study, arms, given.seeds)
    refuse_unequal(runs)
    found = {"recipe": study.recipe, "kimg": study.kimg, **summed(runs)}
    print_results(found)
    if not given.no_result:
        path = write("cellular-mnist", found)
        path.with_suffix(".svg").write_text(plots.plot(found))


if __name__ == "__main__":
    main()
