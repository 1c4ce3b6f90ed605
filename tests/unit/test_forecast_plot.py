"""Plot of a forecast: it contains every number, the bars add up to 100 %, and what cannot be drawn is refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from math import log

import pytest
from PIL import Image

from paragan.core.errors import ConfigError
from paragan.report import figure
from paragan.scaling.cluster import Link, Unevenness
from paragan.scaling.forecast import Forecast, Goal, forecasts
from paragan.scaling.forecast_plot import check_plot_file, write_forecast_plot
from paragan.scaling.plan import ForecastPlan
from tests.simulated_workers import cluster, game

COUNTS = (1, 8, 64)
SHARES = {"compute": 70.0, "imbalance": -10.0, "communication": 25.0, "jitter": 15.0}
ROW = Forecast(
    workers=8,
    hosts=1,
    batch=64,
    step_s=0.1,
    low_s=0.1,
    high_s=0.1,
    images_per_s=640.0,
    efficiency=0.7,
    link_bytes={},
    hours=1.0,
    cost=None,
    losses=SHARES,
)


@pytest.fixture(scope="module")
def plan() -> ForecastPlan:
    goal = Goal(1000)
    uneven = cluster(1, Link(1e-4, 1e9), unevenness=Unevenness(jitter=0.05, stragglers=0.1, straggler_factor=1.3))
    return ForecastPlan(game().profile, uneven, goal, forecasts(game(), uneven, goal, COUNTS, num_steps=40))


def drawn(plan: ForecastPlan, path) -> str:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `plot`")
    write_forecast_plot(plan, path)
    return path.read_text()


def bar_heights(text: str) -> dict[tuple[int, str], tuple[float, float]]:
    """Lower and upper end of each part of a bar, in points from the top of the page."""
    found = {}
    for group in ElementTree.fromstring(text).iter():
        if (name := re.fullmatch(r"loss-(\d+)-(\w+)", group.get("id", ""))) is not None:
            (path,) = (part for part in group if part.tag.endswith("path"))
            heights = [float(y) for y in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))]
            found[int(name[1]), name[2]] = (max(heights), min(heights))
    return found


def test_plot_contains_every_number_of_the_table(plan, tmp_path):
    text = drawn(plan, tmp_path / "plan.svg")
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(text).iter() if "text" in node.tag}
    for row in plan.rows:
        assert f"{row.workers:,}" in texts
        assert (f"{row.images_per_s:,.0f}" if row.images_per_s >= 1000 else f"{row.images_per_s:.4g}") in texts
        assert {f"{share:.1f}" for share in row.losses.values() if share >= 4} <= texts
    assert {"linear", "forecast", "compute", "jitter", "stragglers", "digits, weak scaling (forecast)"} <= texts
    assert not {"failures", "data"} & texts  # causes without a share


def test_parts_of_a_bar_have_the_heights_of_the_losses_and_add_up(plan, tmp_path):
    ends = bar_heights(drawn(plan, tmp_path / "plan.svg"))
    several = plan.rows[1:]
    totals = []
    for row in several:
        heights = {cause: low - high for (count, cause), (low, high) in ends.items() if count == row.workers}
        totals.append(sum(heights.values()))
        parts = [ends[row.workers, cause] for cause in heights]
        assert [low for low, _ in parts[1:]] == pytest.approx([high for _, high in parts[:-1]], abs=1e-3)
        for cause, height in heights.items():
            assert 100 * height / totals[-1] == pytest.approx(row.losses[cause], abs=0.01)
    assert totals[0] == pytest.approx(totals[1], abs=1e-3)


def test_negative_loss_is_drawn_below_zero(plan, tmp_path):
    ends = bar_heights(drawn(replace(plan, rows=(ROW,)), tmp_path / "plan.svg"))
    per_cent = (ends[8, "compute"][0] - ends[8, "compute"][1]) / 70
    zero = ends[8, "compute"][0]
    assert ends[8, "imbalance"] == pytest.approx((zero + 10 * per_cent, zero), abs=0.01)
    assert ends[8, "communication"][0] == pytest.approx(ends[8, "compute"][1], abs=0.01)
    assert zero - ends[8, "jitter"][1] == pytest.approx(110 * per_cent, abs=0.01)


def curves_of(text: str) -> list[list[float]]:
    """Heights of the points of the linear line and of the curve."""
    paths = [path for path in ElementTree.fromstring(text).iter() if "stroke-width: 1.5" in path.get("style", "")]
    return [[float(y) for y in re.findall(r"[ML] \S+ (\S+)", path.get("d", ""))] for path in paths[:2]]


def test_linear_line_is_that_of_an_efficiency_of_one(plan, tmp_path):
    line, curve = curves_of(drawn(plan, tmp_path / "plan.svg"))
    unit = (line[0] - line[-1]) / log(64)
    gaps = [(under - over) / unit for over, under in zip(line, curve, strict=True)]
    assert gaps == pytest.approx([-log(row.efficiency) for row in plan.rows], abs=1e-3)


def test_equal_forecasts_give_equal_files(plan, tmp_path):
    assert drawn(plan, tmp_path / "a.svg") == drawn(plan, tmp_path / "b.svg")
    write_forecast_plot(plan, tmp_path / "plan.PNG")
    with Image.open(tmp_path / "plan.PNG") as image:
        assert image.size[0] > image.size[1] > 200


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("plan.pdf", r"unknown format '\.pdf'; name a file that ends in \.svg or \.png"),
        ("plan", "unknown format ''"),
        ("none/plan.svg", "cannot write this file; name one in a folder that exists"),
        ("folder.svg", "cannot write this file"),
    ],
)
def test_file_that_cannot_be_a_plot_is_refused_in_one_line(tmp_path, name, problem):
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ConfigError, match=problem) as refused:
        check_plot_file(tmp_path / name)
    assert "\n" not in str(refused.value) and str(tmp_path / name) in str(refused.value)


def test_file_that_cannot_be_written_is_refused(plan, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `plot`")
    with pytest.raises(ConfigError, match=r"cannot write this file: .*; name another one"):
        write_forecast_plot(plan, tmp_path / "gone" / "plan.svg")


def test_plot_without_matplotlib_is_refused_before_the_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(figure, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"^--plot: matplotlib is not installed; run .* -m pip install 'paragan\[plot\]'$"
    ):
        check_plot_file(tmp_path / "plan.svg")
