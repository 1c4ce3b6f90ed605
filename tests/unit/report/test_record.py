"""The record as report and watch read it: in pieces, in bounded memory, whatever it says."""

import json
import math
import os
import time
import tracemalloc

import pytest

from paragan.report.chart import run_end
from paragan.report.panels import best_evaluation, metric_charts
from paragan.report.record import History, Record
from paragan.report.record_values import RecordEntry, single_line, thin_out, to_natural
from paragan.report.run_state import run_state
from paragan.report.scale import fit_scale, format_number
from paragan.report.series import CAPACITY, Series
from tests.browser import made_run
from tests.unit.report.test_report import record


def test_a_spike_survives_ten_thousand_values():
    series = Series()
    for step in range(10_000):
        series.add(step, step / 1000, 1e6 if step == 4321 else 1.0)
    assert len(series.points) <= CAPACITY
    assert sum(point.finite for point in series.points) == 10_000
    assert max(point.high for point in series.points) == 1e6


def test_buckets_keep_their_mean_and_order():
    series = Series()
    for step in range(1000):
        series.add(step, float(step), float(step))
    kimg = [point.kimg for point in series.points]
    assert kimg == sorted(kimg) and kimg[-1] == 999
    assert sum(point.total for point in series.points) == sum(range(1000))
    assert {point.finite for point in series.points[:-1]} == {series.width}
    assert all(point.low <= point.value <= point.high for point in series.points)


@pytest.mark.parametrize(
    ("code", "word"),
    [(0, "finished"), (85, "stopped"), (1, "failed"), (2, "failed"), ("x", "running"), (None, "running")],
)
def test_the_state_follows_the_end_or_exit_json(tmp_path, code, word):
    record(tmp_path, '{"kind": "start", "step": 0, "kimg": 0}')
    assert run_state(tmp_path, History()).word == "running"
    (tmp_path / "exit.json").write_text(json.dumps({"code": code, "step": 1, "reason": "why"}))
    assert run_state(tmp_path, History()).word == word
    history = History()
    history.add("end", RecordEntry(step=1, kimg=1.0, values={"code": 0, "reason": "finished"}))
    assert run_state(tmp_path, history).word == "finished"


def test_a_run_that_went_quiet_is_not_called_running(tmp_path):
    record(tmp_path, '{"kind": "start", "step": 0, "kimg": 0}')
    an_hour_ago = time.time() - 3600
    os.utime(tmp_path / "metrics.jsonl", (an_hour_ago, an_hour_ago))
    assert run_state(tmp_path, History()).word == "silent"


def test_a_line_cut_short_waits_for_its_end(tmp_path):
    folder = record(tmp_path / "run", '{"kind": "event", "step": 1, "kimg": 1, "text": "one"}')
    reader = Record(folder / "metrics.jsonl")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"kind": "event", "step": 2, ')
    assert reader.read() and list(reader.history.events) == [(1, "one")]
    assert not reader.read()
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('"kimg": 1, "text": "two"}\n')
    assert reader.read() and list(reader.history.events) == [(1, "one"), (2, "two")]


def test_a_record_that_was_cut_back_is_read_anew(tmp_path):
    folder = made_run.make(tmp_path / "run", steps=20, scores=3)
    reader = Record(folder / "metrics.jsonl")
    reader.read()
    assert len(reader.history.scores) == 3
    kept = (folder / "metrics.jsonl").read_text().splitlines()[:10]
    (folder / "new").write_text("\n".join(kept) + "\n")
    os.replace(folder / "new", folder / "metrics.jsonl")
    assert reader.read() and len(reader.history.scores) == 1 and reader.history.step < 400


def test_seconds_of_all_sessions_add_up():
    history = History()
    for kind, seconds in (("start", 0.0), ("step", 10.0), ("start", 0.5), ("step", 4.0)):
        history.add(kind, RecordEntry(step=1, kimg=1.0, values={"seconds": seconds}))
    assert history.seconds == 14.0


@pytest.mark.parametrize("odd", [math.inf, math.nan, None, "x", 10**400])
def test_seconds_that_are_no_number_do_not_count(odd):
    history = History()
    for seconds in (10.0, odd, 12.0):
        history.add("step", RecordEntry(step=1, kimg=1.0, values={"seconds": seconds}))
    assert history.seconds == 12.0


def test_positions_count_the_time_of_all_sessions():
    history = History()
    for step, seconds in enumerate((10.0, 20.0, 5.0, 15.0)):  # resumed before the third
        history.add("score", RecordEntry(step=step, kimg=float(step), values={"fd": 1.0, "seconds": seconds}))
        history.add("step", RecordEntry(step=step, kimg=float(step), values={"d/real": 1.0, "seconds": seconds}))
    assert [entry.seconds for entry in history.scores] == [10.0, 20.0, 25.0, 35.0]
    assert [point.seconds for point in history.series["d/real"].points] == [10.0, 20.0, 25.0, 35.0]


def test_a_metric_that_is_null_later_is_marked_and_its_number_stays():
    history = History()
    for step, value in enumerate((3.0, None)):
        history.add("score", RecordEntry(step=step, kimg=float(step), values={"fd": value}))
    (chart,) = metric_charts(history.scores, run_end(1.0, 1.0))
    trace = chart.lines[0].traces["kimg"]
    assert (trace["dots"].count("h0"), trace["bad"].count("M")) == (1, 1)
    assert best_evaluation("fd", history.scores).step == 0


def test_history_of_untrusted_record_is_bounded(tmp_path):
    values = json.dumps({"text": "x" * 5_000, "list": [[0]] * 1000, **{f"n{n}": n for n in range(100)}})[1:]
    with open(tmp_path / "metrics.jsonl", "w") as file:
        for n in range(60):
            for kind in ("advice", "samples", "score", "event"):
                file.write(f'{{"kind": "{kind}", "step": {n}, "kimg": {n}, "name": "n{n}", ' + values + "\n")
    reader = Record(tmp_path / "metrics.jsonl")
    tracemalloc.start()
    reader.read()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 << 20  # a list is ten times as large in memory as in the 2 MB of the file
    assert list(reader.history.advice) == [f"n{n}" for n in range(10, 60)]


def test_thin_out_preserves_first_last_and_extremes():
    history = History()
    for n in range(5001):
        history.add(
            "score", RecordEntry(step=n, kimg=float(n), values={"fd": {321: -1.0, 4321: math.inf, 2223: 7e6}.get(n, n)})
        )
        history.add("samples", RecordEntry(step=n, kimg=float(n), values={"path": f"samples/{n}.png"}))
    for kept in (history.scores, history.samples):
        steps = [moment.step for moment in kept]
        assert len(steps) <= 1000 and steps == sorted(steps) and (steps[0], steps[-1]) == (0, 5000)
    assert {321, 2223} <= {moment.step for moment in history.scores} and history.num_scores == 5001


@pytest.mark.parametrize(("num_entries", "distance"), [(2500, 1), (2500, 7), (4000, 1)])
def test_entries_that_are_thinned_out_as_they_come_cover_the_whole_run(num_entries, distance):
    history = History()
    for n in range(num_entries):
        history.add("score", RecordEntry(step=n * distance, kimg=float(n), values={"fd": 1.0}))
    steps = [entry.step for entry in history.scores]
    first_half = sum(step < num_entries * distance / 2 for step in steps)
    assert 400 <= len(steps) <= 1000 and 1 / 3 <= first_half / (len(steps) - first_half) <= 3


def test_entries_without_a_step_of_their_own_are_thinned_out():
    entries = [RecordEntry(step=5, kimg=0.0, values={"fd": float(n)}) for n in range(300)]
    assert [entry.numbers["fd"] for entry in thin_out(entries, 102)] == [0.0, 299.0]


@pytest.mark.parametrize(("metric", "step"), [("fd[judge]", 2), ("label_accuracy", 1), ("class_variance_min", None)])
def test_the_best_evaluation_follows_the_sense_of_the_metric(metric, step):
    scores = [
        RecordEntry(step=n, kimg=n / 1, values={"step": n, metric: value})
        for n, value in enumerate([5.0, 9.0, 1.0, float("nan")])
    ]
    found = best_evaluation(metric, scores)
    assert (found.step if found else None) == step


@pytest.mark.parametrize("floor", [None, 0.0])
@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0],
        [5e-324, 0.0],
        [1e-310, 1e-312],
        [-1e308, 1e308],
        [1e-300, 1e308],
        [1.0, 1.0 + 2e-16],
        [-2.0, -1.0, 3e9],
        [*([1.0] * 50), 1e12],
    ],
)
def test_any_finite_values_get_a_scale(values, floor):
    scale = fit_scale(values, floor)
    assert all(0.0 <= scale.share(v) <= 1.0 for v in [*values, *scale.ticks()])
    assert 1 <= len(scale.ticks()) <= 9 and all(math.isfinite(tick) for tick in scale.ticks())


def test_scale_is_logarithmic_over_decades_and_clips_outliers():
    assert fit_scale([0.01, 1.0, 100.0]).log and not fit_scale([-1.0, 100.0]).log
    assert not fit_scale([0.01, 100.0], floor=0.0).log
    steady = [n / 100 - 0.5 for n in range(100)]
    assert fit_scale([*steady, 1e9]).high < 3 and fit_scale([*steady, 5.0]).high > 5


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (0.0, "0"),
        (12.3456, "12.35"),
        (1234.5, "1,234"),
        (-0.5, "−0.5"),
        (0.0002, "2e−4"),
        (3e9, "3e9"),
        (1e-300, "1e−300"),
    ],
)
def test_format_number_is_short(value, output):
    assert format_number(value) == output


def test_text_from_a_run_cannot_control_anything():
    assert single_line("a\x1b[31m\r\nb\u202ec\ud800\x9b") == "a[31m bc"
    assert len(single_line("x" * 10_000)) == 500


@pytest.mark.parametrize(
    ("value", "found"),
    [(0, 0), ("12", 12), (-1, None), ("-1", None), (True, None), (1.0, None), ("٣", None), ("", None), (10**15, None)],
)
def test_a_whole_number_or_a_key_is_one(value, found):
    assert to_natural(value) == found and to_natural("9" * 16) is None
