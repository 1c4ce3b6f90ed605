"""`python -m benchmarks.table1`: rows are measured round by round, count their updates and appear in the table."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from benchmarks.table1 import report, rows, run

SETTINGS = ("data.size=16", "model.width=2", "evaluation.num_images=6")
ROWS = {row.name: row for group in (*rows.VANILLA, *rows.PIX2PIX[::-1]) for row in group.rows}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    for part, numbers in (("train", range(8)), ("val", range(8, 14))):
        (root / part).mkdir()
        for number in numbers:
            left = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(np.concatenate([left, 255 - left], 1)).save(root / part / f"{number}.png")
    return root


def small_table(pairs, batch, *names, **changes):
    """Options, a small table of these rows, and its only group."""
    options = rows.Table1Options(**{"images": 8, "rounds": 2, "data": str(pairs), **changes})
    (whole,) = options.tables()
    group = rows.Group(batch, tuple(ROWS[name] for name in names))
    return options, replace(whole, settings=(*whole.settings, *SETTINGS), groups=(group,)), group


@pytest.fixture(scope="module")
def measured(pairs):
    """Options, table and results of two epochs; the last row cannot be measured on a CPU."""
    options, table, group = small_table(pairs, 1, "baseline", "accumulation 4", "ZeRO (zero1)", epochs=2)
    group = rows.Group(1, (*group.rows, rows.Row("invalid", ("precision=fp16",))))
    table = replace(table, groups=(group,))
    return options, table, run.measure_group(options, table, group)


@pytest.mark.slow
def test_report_writes_json_markdown_and_plot(measured, tmp_path):
    options, table, results = measured
    paths = report.write(options, [(table, results)], tmp_path, "2026-01-02", complete=True)
    assert [path.name for path in paths] == [f"2026-01-02-table1.{ending}" for ending in ("json", "md", "svg")]
    record = json.loads(paths[0].read_text())
    assert record["complete"] is True and record["threads"] == 1
    assert record.keys() >= {"date", "machine", "torch", "note", "options", "tables"}
    (entry,) = record["tables"]
    assert entry["recipe"] == "pix2pix-facades" and [r["row"] for r in entry["rows"]] == [m.row.name for m in results]
    quarter = entry["rows"][1]
    assert quarter["updates"] == [2, 2] and quarter["poster"]["ratio"] == pytest.approx(0.847, abs=5e-4)
    assert 0 < quarter["time"]["low"] <= quarter["time"]["median"] <= quarter["time"]["high"]
    page = paths[1].read_text()
    assert all(f"| {result.row.name} |" in page for result in results) and "0.847" in page and "6.721" in page
    plot = ET.fromstring(paths[2].read_text())
    rings = [group.get("id") for group in plot.findall(".//{*}g") if (group.get("id") or "").startswith("poster ")]
    assert rings == ["poster pix2pix-facades 0", "poster pix2pix-facades 1"]  # the poster's accumulation and ZeRO
    assert str(options.data) not in paths[0].read_text()


def test_poster_numbers_belong_to_the_rows_of_its_table():
    compared = [row for group in rows.PIX2PIX for row in group.rows if row.poster and row.name != "baseline"]
    assert {row.name: round(row.poster.ratio, 3) for row in compared} == {
        "data parallel": 0.937,
        "AMP (bf16 autocast)": 0.868,
        "accumulation 4": 0.847,
        "clipping (norm 2)": 0.865,
        "ZeRO (zero1)": 6.721,
        "ZeRO (zero3)": 6.721,
    }
    assert [group.batch for group in rows.PIX2PIX] == [1] * 6 + [4, 8]
    assert not any(row.poster for group in rows.PIX2PIX[6:] for row in group.rows)  # it has no number for these
    assert not any(row.poster for group in rows.VANILLA for row in group.rows)


@pytest.mark.parametrize("recipe", ["pix2pix-facades", "vanilla-mnist"])
def test_settings_of_every_row_make_a_valid_config(recipe, tmp_path):
    from paragan.config import read_recipe

    options = rows.Table1Options(data=str(tmp_path), mnist=str(tmp_path))
    table = next(t for t in options.tables() if t.recipe == recipe)
    for group in table.groups:
        for row in group.rows:
            processes = run.row_processes(options, table, group, row, tmp_path)
            config = read_recipe(recipe, processes.settings)
            assert config.train.batch == group.batch * row.micro_batches
            assert config.g.micro_batches == config.d.micro_batches == row.micro_batches
            assert config.g.ema is None
            arguments = config.d.optimizer.arguments
            assert arguments["betas"] == [0.5, 0.999]
            plain = not any("optimizer" in setting for setting in row.settings)
            assert (arguments.get("fused"), arguments.get("foreach")) == (False, False) if plain else True
