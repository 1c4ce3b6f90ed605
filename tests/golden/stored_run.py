"""A run and an exported generator as the first format wrote them: later versions must read and resume them.

    python -m tests.golden.stored_run FOLDER     write such a run (for a new format, next to the former ones)
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import paragan as pg
from paragan.cli.export import export

HERE = Path(__file__).parent
SETTINGS = {
    "data.size": 8, "model": {"name": "mlp", "latent": 4, "g_widths": [8], "d_widths": [8]}, "train.batch": 8,
    "train.kimg": 0.032, "every.log_steps": 1, "every.sample_kimg": 0, "every.save_kimg": 0.032, "train.threads": 1,
    "evaluation.features": None, "g.precision": "fp32", "d.precision": "fp32", "penalties": ["r1"],
    "g.optimizer.lr": 2e-3, "d.optimizer.lr": 2e-3,
}  # fmt: skip
LONGER = {"train.kimg": 0.064}
NOT_STORED = ("*.html", "samples", "environment.json", "run.lock", "ranks", "stacks")


def described(run: pg.Run) -> dict[str, list[float]]:
    """Return losses of the run, and some values of a sample."""
    pixels = run.sample(2, seed=0).tensor.flatten()[::7]
    return {"g": [line["g/loss/adversarial"] for line in run.history], "pixels": pixels.tolist()}


def main(folder: Path) -> None:
    """Write the run, its exported generator, and what a resume of it gives."""
    scratch = folder / "scratch"
    run = pg.train("digits", SETTINGS, out=scratch / "run")
    shutil.copytree(run.folder, folder / "run", ignore=shutil.ignore_patterns(*NOT_STORED))
    export(run.folder, out=folder / "generator.safetensors")
    expected = {"stored": described(run), "resumed": described(run.resume(LONGER))}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
