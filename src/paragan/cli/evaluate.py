"""`paragan eval`: scores of a finished or stopped run."""

import json
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, Best, Code, Run, Seed, Steps, Trust, trusted

NumImages = Annotated[int | None, typer.Option(min=6, help="Number of images to score (default: the run's).")]


def score_run(
    path: Run,
    *,
    as_json: AsJson = False,
    num_images: NumImages = None,
    seed: Seed = None,
    steps: Steps = None,
    best: Best = False,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Score a run's generator (averaged weights) against real images."""
    from paragan.runs.evaluate import evaluate_run

    score = evaluate_run(path, num_images, seed=seed, best=best, trust=trusted(trust, code), steps=steps)
    print(json.dumps(score.to_json()) if as_json else score)
