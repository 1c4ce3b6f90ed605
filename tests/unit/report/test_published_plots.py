"""Plots of the published figures: those of the docs are drawn from the newest record, and have its numbers."""

import json
from pathlib import Path

import pytest

from benchmarks.published_scaling_plots import IMAGES, plots
from benchmarks.record import RESULTS

ROOT = Path(__file__).resolve().parents[3]
RECORD = max(RESULTS.glob("*-published-scaling-plots.json"))
ROWS = json.loads(RECORD.read_text())["rows"]


def test_published_plots_are_drawn_from_their_record():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
    if f"matplotlib=={matplotlib.__version__}\n" not in (ROOT / "constraints.txt").read_text():
        pytest.skip(f"the plots are drawn by the matplotlib of constraints.txt, not {matplotlib.__version__}")
    for name, text in plots(ROWS).items():
        assert (IMAGES / name).read_text() == text, "out of date: run `python -m benchmarks.published_scaling_plots`"


def test_page_shows_the_numbers_of_the_record():
    page = (ROOT / "docs/how-to/machines/scaling.md").read_text()
    for scaling, by_name in ROWS.items():
        for name, rows in by_name.items():
            cells = [f"{row['images_per_s']:,.0f}" if scaling == "weak" else f"{row['hours']:.1f}" for row in rows]
            assert f"\n| {name} | {' | '.join(cells)} |\n" in page, (scaling, name)
