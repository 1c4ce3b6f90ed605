"""Cost of forecasts: the newest record is complete and below its limit, and the page shows it."""

import json
from pathlib import Path

import pytest

from benchmarks.record import RESULTS
from benchmarks.simulation_cost import CASES, COUNTS, MOST_SECONDS

RECORD = json.loads(max(RESULTS.glob("*-simulation-cost.json")).read_text())
PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/machines/scaling.md").read_text()


@pytest.mark.parametrize("name", CASES)
def test_recorded_cost_of_a_forecast_is_below_its_limit_and_on_the_page(name):
    row = RECORD["rows"][name]
    ratio = row["ratio"]
    assert ratio["pairs"] >= 15 and ratio["low"] <= ratio["median"] <= ratio["high"]
    assert list(row["seconds"]) == [f"{count:,}" for count in COUNTS]
    assert ratio["a_seconds"] < MOST_SECONDS
    times = f"{ratio['b_seconds']:.2f} s | {ratio['a_seconds']:.2f} s | {row['seconds']['4,096']:.2f} s"
    span = f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    assert f"\n| {name} | {times} | {span} |\n" in PAGE
