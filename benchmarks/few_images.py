"""Recipe `own` on 100 images, with and without augmentation: `python -m benchmarks.few_images DIR`.

DIR: made by `python -m benchmarks.own_folders DIR hundred hundred-others`. A sample is a *copy* if it is nearer to a
training image than any two training images are to each other (root mean square of the pixel differences, in [0, 255]).
`fd_trained` compares with the images that were trained on, so that it rewards memorising; `fd_others` with 69 of the
same kind that no run has seen, in the features of `cifar10`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
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
            runs.append({"augment": augment, "seed": seed, **_judged(run, images, between, folders / "hundred-others")})
            print(json.dumps(runs[-1]))
    fds = {augment: [run["fd_others"] for run in runs if run["augment"] == augment] for augment in AUGMENTS}
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


def _judged(run: Path, images: Pixels, between: Pixels, others: Path) -> dict[str, Any]:
    """Return how near samples of a run are to its images, and their distance to others of the same kind."""
    with tempfile.TemporaryDirectory() as name:
        samples, real = Path(name) / "samples", Path(name) / "others"
        _paragan("sample", str(run), "--num", str(SAMPLES), "--out", str(samples))
        real.mkdir()
        for path in others.iterdir():
            _resized(path).save(real / path.name)
        scored = _paragan("score", str(samples), str(real), "--features", "cifar10", "--metrics", "fd", "--json")
        nearest = nearest_distances(pixels(samples), images)
    kimg, fd = list(outcome(run)["fd"].items())[-1]
    return {
        "copies": int((nearest < between.min()).sum()),
        "nearest": round(float(nearest.min()), 2),
        "kimg": kimg,
        "fd_trained": fd,
        "fd_others": round(json.loads(scored)["metrics"]["fd"], 3),
    }


def _paragan(*words: str) -> str:
    command = [sys.executable, "-m", "paragan", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, check=True, timeout=600, capture_output=True, text=True).stdout


def pixels(folder: Path) -> Pixels:
    """Return all images below a folder, a row of pixels each, at the size of the run."""
    rows = []
    for path in sorted(folder.rglob("*.png")):
        rows.append(np.asarray(_resized(path), np.float32).ravel())
    return np.stack(rows)


def _resized(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def nearest_distances(samples: Pixels, images: Pixels, skip_itself: bool = False) -> Pixels:
    """Return the distance of each sample to its nearest image. skip_itself: sample i is image i."""
    distances = np.stack([np.sqrt(((images - sample) ** 2).mean(1)) for sample in samples])
    if skip_itself:
        np.fill_diagonal(distances, np.inf)
    nearest: Pixels = distances.min(1)
    return nearest


if __name__ == "__main__":
    sys.exit(run_command(app, "few_images"))
