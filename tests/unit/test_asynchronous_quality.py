"""`benchmarks.asynchronous_quality`: rows are played and kept, intervals and emulated seconds are right."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
import torch

from benchmarks import (
    asynchronous_plots as plots,
    asynchronous_quality as quality,
    asynchronous_ring as ring,
    asynchronous_summary as summary,
)
from benchmarks.asynchronous_cost import costs
from benchmarks.asynchronous_rows import PROBES, ROWS, TABLES, chosen, shortened
from benchmarks.asynchronous_run import NUM_BINS
from paragan.core.types import Rows

STEPS = 16
TABLE = shortened(TABLES["ring"], kimg=TABLES["ring"].batch * STEPS / 1000, points=2)
PLAYED = {row.name: row for row in (*ROWS, *PROBES)}


@pytest.fixture(scope="module")
def keep(tmp_path_factory):
    return tmp_path_factory.mktemp("keep")


@pytest.fixture(scope="module")
def rows():
    return [PLAYED[name] for name in ("sync", "async", "async half", "async S=0", "async, only G late")]


@pytest.fixture(scope="module")
def runs(rows, keep):
    return quality.measured(TABLE, rows, 2, None, keep)


def test_every_row_is_played_to_the_same_number_of_images(runs):
    for name, of in runs.items():
        steps = STEPS * (2 if name == "async half" else 1)
        assert [run["steps"] for run in of] == [steps, steps]
        assert [point["images"] for point in of[0]["points"]] == [0, 512, 1024]
        assert of[0]["g_images"] == steps * TABLE.batch
        assert of[0]["points"][0]["fd"] > 0


def test_without_delay_it_is_the_control(runs):
    assert runs["async S=0"][0]["points"] == runs["sync"][0]["points"]
    assert runs["sync"][0]["points"][-1] != runs["sync"][1]["points"][-1]


def test_delays_are_what_the_row_says(runs):
    assert runs["async, only G late"][0]["lags"] == {"g": {"1": STEPS}, "d": {"0": STEPS * TABLE.batch}}
    assert runs["async S=0"][0]["lags"]["g"] == {"0": STEPS}


def test_a_kept_run_is_not_played_again(runs, keep, monkeypatch):
    monkeypatch.setattr(quality, "played", lambda *_: pytest.fail("played again"))
    assert quality.kept(TABLE, PLAYED["sync"], 1, None, keep) == runs["sync"][1]
    with pytest.raises(pytest.fail.Exception):
        quality.kept(shortened(TABLE, TABLE.kimg * 2, 2), PLAYED["sync"], 1, None, keep)


def test_the_table_and_its_pictures(rows, runs, keep, capsys):
    cost = costs(TABLE, rows, None, keep)
    assert all(cost[row.name]["g"] > 0 and cost[row.name]["d"] > 0 for row in rows)
    found = quality.result(TABLE, rows, runs, cost)
    quality.say(found)
    assert "sync G-64 D-64" in capsys.readouterr().out
    assert found["paired"]["async S=0 - sync"]["at equal images"] == {"mean": 0.0, "half": 0.0, "count": 2}
    assert found["rows"]["async half"]["label"] == "async half G-64 D-32"
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra `dev`")
    losses = plots.losses({"sync": {"symmetric": runs["sync"], "asymmetric": runs["async"]}})
    for drawn in (plots.scores(found, [["sync", "async half"], ["no such"]]), losses):
        assert ET.fromstring(drawn).tag.endswith("svg") and "nan" not in drawn
        assert drawn.count("thousands of real images") >= 1
    assert len(runs["sync"][0]["losses"]["d"]) == min(STEPS, NUM_BINS)


def test_interval():
    found = summary.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found["mean"] == 3.0
    assert found["half"] == pytest.approx(2.776 * math.sqrt(2.5) / math.sqrt(5))  # Student's t at 4 degrees
    assert summary.interval([1.0])["half"] == math.inf


def test_seconds_of_two_devices():
    cost = {"g": 2.0, "d": 3.0}
    assert summary.step_seconds(PLAYED["sync"], cost) == 5.0
    assert summary.step_seconds(PLAYED["sync"], cost, shared_out=True) == 2.5
    assert summary.step_seconds(PLAYED["async"], cost) == 3.0
    run = {"points": [{"step": 0, "fd": 8.0}, {"step": 2, "fd": 4.0}, {"step": 4, "fd": 3.0}]}
    assert summary.at_seconds(run, 5.0, 15.0, "fd") == 3.5
    assert summary.at_seconds(run, 3.0, 12.0, "fd") == 3.0
    assert summary.at_seconds(run, 3.0, 13.0, "fd") is None


def test_a_run_that_did_not_get_to_its_end_counts_as_diverged(runs):
    short = {**runs["async"][0], "points": runs["async"][0]["points"][:2], "diverged": True}
    same = {name: {"g": 1.0, "d": 1.0} for name in ("sync", "async")}
    both = {"sync": runs["sync"], "async": [short, runs["async"][1]]}
    found = summary.summed(TABLE, [PLAYED["sync"], PLAYED["async"]], both, same)
    assert found["rows"]["async"]["diverged"] == 1
    assert found["paired"]["async - sync"]["at equal images"]["count"] == 1


def test_modes_of_the_ring():
    real = ring.points(0, "real", Rows(0, 0, 4000, 4000))
    whole = ring.measured(real, ring.points(1, "real", Rows(0, 0, 4000, 4000)))
    assert (whole["modes"], whole["good"] > 0.99, whole["sliced distance"] < 0.03) == (8.0, True, True)
    one = ring.measured(torch.tensor([[1.0, 0.0]]).repeat(4000, 1), real)
    assert (one["modes"], one["good"]) == (1.0, 1.0)
    assert one["sliced distance"] > 0.5 and one["fd"] > 1


def test_only_names_rows():
    assert [row.name for row in chosen("half,double")] == ["async half", "sync double"]
    assert [row.name for row in chosen("sync, asymm")] == ["sync", "sync asymmetric", "async asymmetric"]
    assert len(chosen(probes=True)) == len(ROWS) + len(PROBES)
