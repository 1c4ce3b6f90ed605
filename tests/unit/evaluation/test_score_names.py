"""Names of scores: the manual explains those that the code computes and no others; values of events."""

import json
import re
from pathlib import Path

from paragan.core import registry
from paragan.core.metric import Direction
from paragan.evaluation.score import Score

ROOT = Path(__file__).resolve().parents[3]
COMPUTED = {registry.load_module("metrics", name).Metric.name for name in registry.names("metrics")}


def test_the_manual_explains_the_metrics_that_are_computed_and_no_others():
    page = (ROOT / "docs/reference/scores.md").read_text(encoding="utf-8")
    page = page[page.index("## Metrics") : page.index("## Extractors")]
    rows = re.findall(r"^\| `(\w+)(?:\[NAME\])?` \|", page, re.M)
    assert sorted(rows) == sorted(COMPUTED)


def test_score_is_read_from_the_values_of_its_event():
    directions = {"fd": Direction.LOWER, "coverage": Direction.HIGHER}
    score = Score(
        metrics={"fd": 2.0, "coverage": 0.5},
        num_images=10,
        protocol={"mode": "eval"},
        real={"fd": 1.0},
        directions=directions,
        intervals={"fd": (1.0, 3.0)},
    )
    assert Score.from_values(json.loads(json.dumps({**score.values, "evaluation_mode": "inline"}))) == score
