"""What the report says of a run: its name, where each number stands, events, next commands, explanations of metrics."""

import json
import re
from pathlib import Path

import pytest

from paragan.core import registry
from paragan.report.chart import Caption, ChartCurve, draw_chart, run_end, table_rows
from paragan.report.metric_notes import explanation, note_of
from paragan.report.page import Page, list_events
from paragan.report.record import open_record
from paragan.report.series import Point
from tests.browser import made_run
from tests.browser.made_run import line


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return Page(made_run.make(tmp_path_factory.mktemp("runs") / "first-try", steps=60, scores=4, samples=2)).render()


def made(folder, *lines):
    """A run of which only the record exists."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def start(**values):
    return line("start", 0, recipe="digits", resumed=False, total_kimg=10 * made_run.STEPS_KIMG, **values)


def test_a_sparse_line_reads_its_newest_value(tmp_path):
    steps = [line("step", step, **{"d/real": 1.0, "d/fake": -1.0}) for step in range(1, 9)]
    looks = [line("telemetry", step, **{"d/held_out": value}) for step, value in ((3, 0.5), (6, 0.25))]
    page = Page(made(tmp_path / "run", start(), *sorted(steps + looks, key=lambda one: one["step"]))).render()
    (table,) = re.findall(r"<table><caption>D outputs</caption>(.*?)</table>", page, re.S)
    held_out = re.findall(r'scope="col">(.*?)</th>', table).index("held out")
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", table)]
    assert [row[held_out] for row in rows] == ["–", "–", "0.5", "0.5", "0.5", "0.25", "0.25", "0.25"]


def test_a_curve_that_has_ended_has_no_value_later():
    ends = [ChartCurve(label=f"{n}", points=[Point.of(k, k, 1.0, k) for k in range(n)], tone=0) for n in (3, 6)]
    chart = draw_chart(Caption(id="x", title="", note=""), ends, run_end(5, 5), "means")
    assert [row[2] for row in table_rows(chart)] == ["1", "1", "1", "–", "–", "–"]


def test_the_last_value_stands_first_and_a_better_one_below(tmp_path):
    """After a collapse the large numbers are those of now."""
    page = Page(
        made(tmp_path / "run", start(), line("score", 2, coverage=0.9), line("score", 4, coverage=0.5))
    ).render()
    assert '<dd class="value">0.5</dd><dd>at 0.256 kimg, the last<br>best 0.9 at 0.128 kimg' in page


@pytest.mark.parametrize(("direction", "best"), [(1, "0.9"), (-1, "0.5"), (None, None)])
def test_a_metric_of_outside_code_has_the_direction_of_the_record(tmp_path, direction, best):
    directions = {"directions": {"spread": direction, "x": [1]}} if direction else {"directions": "x"}
    lines = (line("score", step, spread=value, **directions) for step, value in ((2, 0.9), (4, 0.5), (6, 0.7)))
    page = Page(made(tmp_path / "run", start(), *lines)).render()
    (shown,) = re.findall(r">spread</dt>.*?</div>", page[: page.index("<h2>Metrics</h2>")], re.S)
    assert (f"<br>best {best} at" in shown) == (best is not None) and '"value">0.7<' in shown


def test_events_hold_sessions_warnings_scores_and_checkpoints(tmp_path):
    record = open_record(
        made(
            tmp_path / "run",
            start(),
            line("event", 0, text="warning: class folder 'x' has no images"),
            line("score", 2, **{"fd[judge]": 3.0}),
            line("checkpoint", 2, path="runs/run/checkpoints/step-2"),
            line("end", 2, code=85, reason="stopped by a signal; saved"),
            line("start", 2, recipe="digits", resumed=True),
            line("advice", 3, name="overfitting", means="", value=1.0),
            line("score", 4, **{"fd[judge]": 5.0}),
            line("end", 10, code=0, reason="finished"),
        )
    )
    record.read()
    assert list_events(record.history) == [
        (10, "finished"),
        (4, "score: fd[judge] 5"),
        (3, "advice: overfitting"),
        (2, "resumed"),
        (2, "stopped by a signal; saved"),
        (2, "checkpoint step-2"),
        (2, "score: fd[judge] 3 (best)"),
        (0, "warning: class folder 'x' has no images"),
        (0, "started"),
    ]


@pytest.mark.parametrize(("step", "resumes"), [(5, "resume"), (10, "train twice as long")])
def test_a_finished_run_is_offered_more_images(tmp_path, step, resumes):
    folder = made(tmp_path / "run", start(), line("step", step))
    command = re.search(rf"<dt>{resumes}</dt><dd><code>(.*?)</code>", Page(folder).render()).group(1)
    assert command.endswith(f"train {folder}" + (" train.kimg=1.28" if step == 10 else ""))


def test_a_run_in_the_working_directory_is_not_taken_for_a_recipe(tmp_path, monkeypatch):
    made(tmp_path / "digits", start())
    monkeypatch.chdir(tmp_path)
    assert "train ./digits</code>" in Page(Path("digits")).render()


def test_every_metric_of_the_package_has_a_direction_and_an_explanation(page):
    names = {registry.load_module("metrics", name).Metric.name for name in registry.names("metrics")}
    without = {name for name in names if not explanation(name)}
    assert not without
    without_direction = {name for name in names if not note_of(name).direction}
    assert without_direction == {"class_variance_min", "class_variance_mean", "diversity", "memorisation"}
    assert f'<dt title="{explanation("coverage")}">coverage</dt>' in page
    assert (
        explanation("fd[judge]").endswith("Features of: a classifier trained on your images.")
        and explanation("unknown") == ""
    )


def test_values_of_real_images_and_the_accuracy_of_the_extractor_stand_with_the_scores(tmp_path):
    protocol = {"extractor": "judge", "extractor_accuracy": 0.876, "extractor_task": "classes"}
    score = {"label_accuracy": 0.907, "fd[judge]": 4.0, "real": {"label_accuracy": 0.931}, "protocol": protocol}
    page = Page(made(tmp_path / "run", start(), line("score", 2, **score))).render()
    assert page.count("real images 0.931") == 1
    assert page.count("<br>real images") == 1  # none is known for the distance
    assert "Feature extractor: a classifier trained on your images, 87.6% accuracy on held-out images." in page
