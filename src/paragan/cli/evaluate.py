"""`paragan eval`: the scores of a finished or stopped run."""

from __future__ import annotations

import json
from pathlib import Path

from paragan.cli import source
from paragan.core.errors import ConfigError
from paragan.writers.console import score_line


def run(path: Path, as_json: bool, num_images: int | None, seed: int | None, trust: bool, best: bool = False) -> int:
    """Score the averaged generator of the run at `path`; prints one JSON object or one line."""
    run = source.open_run(path, num_images, trust, best)
    if not run.trainer.is_scored:
        raise ConfigError(
            f"{path}: this run has no score, since score.extractor is none; resume it with score.extractor=auto"
        )
    score = run.trainer.compute_score(run.prior(seed))
    if as_json:
        told = {"metrics": score.metrics, "real": score.real, "num_images": score.num_images}
        print(json.dumps({**told, "protocol": score.protocol}))
    else:
        print(f"step {run.trainer.clock.step}  {score_line(score.values)}  ({score.num_images} images)")
    return 0
