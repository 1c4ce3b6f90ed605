"""Forecasts: losses that add up, efficiency, goals, and their plot, which contains every number."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from paragan.cli.main import main
from paragan.core.errors import ConfigError
from paragan.extensions.planning import profile_run
from paragan.extensions.planning.cluster import Link
from paragan.extensions.planning.forecast import forecast, forecasts
from paragan.extensions.planning.forecast_plot import check_plot_file, draw_losses, draw_scaling, write_forecast_plot
from paragan.extensions.planning.plan import ForecastPlan, Goal
from paragan.extensions.planning.planned_training import read_parallel_plan
from paragan.report import figure
from paragan.schemes import asynchronous
from tests.simulated_workers import cluster, game

LINK = Link(1e-4, 1e9)


@pytest.mark.parametrize("workers", [1, 2, 64, 1024])
@pytest.mark.parametrize("scheme", [None, asynchronous.Scheme()])
def test_losses_add_up_to_the_whole_time(workers, scheme):
    found = forecast(game(scheme), cluster(workers, LINK, jitter=0.05), Goal(1000), num_steps=60)
    assert sum(found.losses.values()) == pytest.approx(100)
    assert found.losses["compute"] == pytest.approx(100 * found.efficiency)


def test_one_worker_has_no_loss():
    found = forecast(game(), cluster(1, LINK), Goal(1000))
    assert found.efficiency == pytest.approx(1)
    assert all(abs(share) < 1e-9 for cause, share in found.losses.items() if cause != "compute")
    assert found.images_per_s == pytest.approx(64 / 0.18)
    assert found.hours == pytest.approx(1_000_000 / (64 / 0.18) / 3600)


@pytest.mark.parametrize(
    ("cause", "workers"), [("communication", cluster(16, LINK)), ("jitter", cluster(16, jitter=0.05))]
)
def test_each_cause_of_loss_has_only_its_own_share(cause, workers):
    losses = forecast(game(), workers, Goal(1000), num_steps=60).losses
    assert losses[cause] > 0.1
    assert all(abs(share) < 1e-6 for name, share in losses.items() if name not in (cause, "compute"))


def test_weak_scaling_grows_the_batch_and_strong_scaling_keeps_it():
    weak, strong = (forecast(game(), cluster(4, LINK), Goal(1000, scaling)) for scaling in ("weak", "strong"))
    assert (weak.batch, strong.batch) == (256, 64)
    # the costs of these players do not depend on their rows, so that smaller shares gain nothing
    assert weak.efficiency == pytest.approx(4 * strong.efficiency)


def test_train_refuses_to_plan_a_scheme_without_forecast_before_it_measures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(profile_run, "measure_profile", lambda *given, **named: pytest.fail("measured"))
    assert main(["train", "digits", "scheme=parameter_server", "--plan", "auto", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--workers (of plan) or --plan (of train)") and "scheme parameter_server" in line


def test_more_workers_than_samples_are_refused():
    with pytest.raises(ConfigError, match=r"100 workers share a batch of 64; pass train\.batch=100"):
        forecast(game(), cluster(100), Goal(1000, "strong"))


@pytest.mark.parametrize(
    "text", ["no JSON", "[]", '{"version": 1e9, "parallel": 3}', "{}", "[" * 100_000, '{"a": ' * 100_000]
)
def test_file_that_is_no_plan_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_parallel_plan(path)
    assert str(caught.value).startswith(f"{path} is ") and "Error" not in str(caught.value)


@pytest.mark.slow  # measures updates
def test_plan_of_workers_prints_no_warning_of_torch(tmp_path):
    command = [sys.executable, "-m", "paragan", "plan", "digits", "model.width=8", "data.size=8", "--workers", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr


# the plot

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


@pytest.mark.parametrize("num", [8, 9, 20])
def test_more_causes_and_curves_than_colours_are_all_drawn(plan, num):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib comes with the extra `plot`")
    causes = {f"cause {number}": 100 / num for number in range(num)}
    figure, (bars, curves) = pyplot.subplots(1, 2)
    draw_losses(bars, [replace(row, losses=causes) for row in plan.rows])
    draw_scaling(curves, {name: [(1, 1.0), (2, 2.0)] for name in causes}, float)
    pyplot.close(figure)
    assert len(bars.containers) == num
    assert len(curves.lines) == num + 1  # the linear one


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
