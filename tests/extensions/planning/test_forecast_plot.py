"""Plot of a forecast: it contains every number, the bars add up to 100 %, and what cannot be drawn is refused."""

import xml.etree.ElementTree as ElementTree

import pytest

from paragan.core.errors import ConfigError
from paragan.extensions.planning.cluster import Link
from paragan.extensions.planning.forecast import forecasts
from paragan.extensions.planning.forecast_plot import check_plot_file, write_forecast_plot
from paragan.extensions.planning.plan import ForecastPlan, Goal
from paragan.report import figure
from tests.simulated_workers import cluster, game

COUNTS = (1, 8, 64)


@pytest.fixture(scope="module")
def plan() -> ForecastPlan:
    goal = Goal(1000)
    uneven = cluster(1, Link(1e-4, 1e9), jitter=0.05)
    return ForecastPlan(game().profile, uneven, goal, forecasts(game(), uneven, goal, COUNTS, num_steps=40))


def drawn(plan: ForecastPlan, path) -> str:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `plot`")
    write_forecast_plot(plan, path)
    return path.read_text()


def test_plot_contains_every_number_of_the_table(plan, tmp_path):
    text = drawn(plan, tmp_path / "plan.svg")
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(text).iter() if "text" in node.tag}
    for row in plan.rows:
        assert f"{row.workers:,}" in texts
        assert (f"{row.images_per_s:,.0f}" if row.images_per_s >= 1000 else f"{row.images_per_s:.4g}") in texts
        assert {f"{share:.1f}" for share in row.losses.values() if share >= 4} <= texts
    assert {"linear", "forecast", "compute", "jitter", "digits, weak scaling (forecast)"} <= texts
    assert not {"failures", "data"} & texts  # causes without a share


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


def test_plot_without_matplotlib_is_refused_before_the_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(figure, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"^--plot: matplotlib is not installed; run .* -m pip install 'paragan\[plot\]'$"
    ):
        check_plot_file(tmp_path / "plan.svg")
