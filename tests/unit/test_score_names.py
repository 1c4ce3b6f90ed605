"""Names of scores: the manual explains those that the code computes and no others."""

from __future__ import annotations

import re
from pathlib import Path

from paragan.core import registry

ROOT = Path(__file__).resolve().parents[2]
COMPUTED = {registry.load_module("metrics", name).Metric.name for name in registry.names("metrics")}


def test_the_manual_explains_the_metrics_that_are_computed_and_no_others():
    page = (ROOT / "docs" / "scores.md").read_text(encoding="utf-8")
    page = page[page.index("## Metrics") : page.index("## Extractors")]
    rows = re.findall(r"^\| `(\w+)(?:\[NAME\])?` \|", page, re.M)
    assert sorted(rows) == sorted(COMPUTED)
