"""`benchmarks.asynchronous_quality`: the smallest table, its pictures, and the interval of a mean."""

import math
import xml.etree.ElementTree as ET

import pytest

from benchmarks import asynchronous_plots as plots, asynchronous_quality as quality, asynchronous_summary as summary
from benchmarks.asynchronous_cost import costs
from benchmarks.asynchronous_rows import PROBES, ROWS, TABLES, shortened
from benchmarks.asynchronous_run import NUM_BINS

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
