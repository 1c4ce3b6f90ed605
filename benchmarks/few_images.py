"""Recipe `own` on 100 images, with and without augmentation: `python -m benchmarks.few_images DIR`.

DIR: made by `python -m benchmarks.own_folders DIR hundred`. A sample is a *copy* if it is nearer to a training image
than any two training images are to each other (root mean square of the pixel differences, in [0, 255]).
"""

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer
from PIL import Image

from benchmarks import record
from benchmarks.command import run_command
from benchmarks.own_images import outcome, train

SIZE = 32
SAMPLES = 1000
AUGMENTS = {"diffaugment": (), "none": ("augment=null",)}
Pixels = npt.NDArray[np.float32]
app = typer.Typer(add_completion=False)


@app.command()
def main(folders: Path, seeds: int = 3, cpu_s: float = 240, out: Path = Path("runs/few-images")) -> None:
    """Train with every seed, with and without augmentation, and compare 1,000 samples with the images."""
    folder = folders / "hundred"
    images = pixels(folder)
    between = nearest_distances(images, images, skip_itself=True)
    runs = []
    for seed in range(seeds):
        for augment, words in AUGMENTS.items():
            run = out / f"{augment}-{seed}"
            if not (run / "exit.json").exists():
                train(_command(folder, seed, run, words), cpu_s)
            nearest = nearest_distances(_samples(run), images)
            copies = int((nearest < between.min()).sum())
            fd = list(outcome(run)["fd"].items())
            runs.append({"augment": augment, "seed": seed, "copies": copies, "kimg": fd[-1][0], "fd": fd[-1][1]})
            runs[-1]["nearest"] = round(float(nearest.min()), 2)
            print(json.dumps(runs[-1]))
    fds = {augment: [run["fd"] for run in runs if run["augment"] == augment] for augment in AUGMENTS}
    better = sum(with_it < without for with_it, without in zip(*fds.values(), strict=True))
    summary: dict[str, Any] = {
        "images": len(images),
        "between_training_images": round(float(between.min()), 2),
        "copies": sum(run["copies"] for run in runs if run["augment"] != "none"),
        "better_with_augmentation": better,
        "fd": {augment: round(statistics.mean(values), 2) for augment, values in fds.items()},
    }
    print(json.dumps(summary))
    record.write("few-images", {"cpu_s": cpu_s, **summary, "runs": runs})


def _command(folder: Path, seed: int, run: Path, words: Sequence[str]) -> list[str]:
    settings = [f"data.path={folder}", f"data.size={SIZE}", f"seed={seed}", "every.score_kimg=8", "train.kimg=100000"]
    return [sys.executable, "-m", "paragan", "train", "own", *settings, *words, "--out", str(run)]


def _samples(run: Path) -> Pixels:
    folder = run.parent / f"{run.name}-samples"
    if not folder.exists():
        words = ["sample", str(run), "--num", str(SAMPLES), "--out", str(folder)]
        subprocess.run([sys.executable, "-m", "paragan", *words], check=True, timeout=600)
    samples = pixels(folder)
    shutil.rmtree(folder)
    return samples


def pixels(folder: Path) -> Pixels:
    """Return all images below a folder, a row of pixels each, at the size of the run."""
    rows = []
    for path in sorted(folder.rglob("*.png")):
        image = Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.LANCZOS)
        rows.append(np.asarray(image, np.float32).ravel())
    return np.stack(rows)


def nearest_distances(samples: Pixels, images: Pixels, skip_itself: bool = False) -> Pixels:
    """Return the distance of each sample to its nearest image. skip_itself: sample i is image i."""
    distances = np.stack([np.sqrt(((images - sample) ** 2).mean(1)) for sample in samples])
    if skip_itself:
        np.fill_diagonal(distances, np.inf)
    nearest: Pixels = distances.min(1)
    return nearest


if __name__ == "__main__":
    sys.exit(run_command(app, "few_images"))
