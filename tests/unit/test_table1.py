"""`paragan bench table1`: rows are measured side by side, count their updates, and the table tells them."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from paragan.cli import _table1 as table1, _table1_rows as rows, _table1_told as told
from paragan.cli._table1_run import RowError, Running
from paragan.cli.main import main

WORDS = ("data.size=16", "model.width=2", "score.num_images=6")
NAMED = {row.name: row for group in (*rows.VANILLA, *rows.PIX2PIX[::-1]) for row in group.rows}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    for part, numbers in (("train", range(8)), ("val", range(8, 14))):
        (root / part).mkdir()
        for number in numbers:
            left = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(np.concatenate([left, 255 - left], 1)).save(root / part / f"{number}.png")
    return root


def small(pairs, batch, *names, **asked):
    """What is asked, a small table of these rows, and its only group."""
    question = rows.Asked(**{"images": 8, "rounds": 2, "data": str(pairs), **asked})
    (whole,) = question.tables()
    group = rows.Group(batch, tuple(NAMED[name] for name in names))
    return question, replace(whole, words=(*whole.words, *WORDS), groups=(group,)), group


@pytest.fixture(scope="module")
def found(pairs):
    """Of two epochs; the last row cannot be measured on a CPU."""
    asked, table, group = small(pairs, 1, "baseline", "accumulation 4", "ZeRO (zero1)", epochs=2)
    group = rows.Group(1, (*group.rows, rows.Row("odd", ("precision=fp16",))))
    table = replace(table, groups=(group,))
    return asked, table, table1.measured(asked, table, group)


def test_rows_are_timed_round_by_round_beside_the_baseline(found):
    asked, table, measured = found
    for one in measured:
        if one.error is None:
            assert len(one.seconds) == len(one.wall) == table1.num_rounds(asked, table, table.groups[0]) == 4
            assert all(value > 0 for value in (*one.seconds, *one.wall, *one.ratios))
            assert one.ratios == [a / b for a, b in zip(one.seconds, measured[0].seconds, strict=True)]
    assert measured[0].base and measured[0].ratios == [1.0] * 4


def test_accumulation_makes_a_quarter_of_the_updates(found):
    updates = {one.row.name: one.updates for one in found[2] if one.error is None}
    assert updates.pop("accumulation 4") == (2, 2)
    assert set(updates.values()) == {(8, 8)}


def test_a_rank_of_its_own_trains_as_the_baseline_does(found):
    by_name = {one.row.name: one for one in found[2]}
    plain, shared, parted = (by_name[n] for n in ("baseline", "ZeRO (zero1)", "accumulation 4"))
    assert (shared.d_loss, shared.g_loss, shared.metrics) == (plain.d_loss, plain.g_loss, plain.metrics)
    assert parted.g_loss != plain.g_loss
    assert {"l1", "psnr", "ssim"} <= plain.metrics.keys()
    assert plain.g_loss > 20  # 100 L1 is in it
    assert 0.5 < plain.d_loss < 2


@pytest.mark.slow
def test_two_ranks_have_twice_the_batch_and_train_as_one_process(pairs):
    asked, table, group = small(pairs, 1, "baseline", "data parallel", ranks=2, images=16)
    plain, shared = table1.measured(asked, table, group)
    assert told.table([plain, shared, plain]).count("| baseline |") == 1
    assert plain.batch == shared.batch == 2 and plain.updates == shared.updates == (8, 8)
    assert shared.error is None
    assert shared.g_loss == pytest.approx(plain.g_loss, rel=1e-3)
    assert shared.metrics["l1"] == pytest.approx(plain.metrics["l1"], rel=1e-3)


def test_the_files_are_complete(found, tmp_path):
    asked, table, measured = found
    paths = told.write(asked, [(table, measured)], tmp_path, "2026-01-02", complete=True)
    assert [path.name for path in paths] == [f"2026-01-02-table1.{ending}" for ending in ("json", "md", "svg")]
    record = json.loads(paths[0].read_text())
    assert record["complete"] is True and record["threads"] == 1
    assert record.keys() >= {"date", "machine", "torch", "note", "asked", "tables"}
    (kept,) = record["tables"]
    assert kept["recipe"] == "pix2pix-facades" and [r["row"] for r in kept["rows"]] == [m.row.name for m in measured]
    quarter = kept["rows"][1]
    assert quarter["updates"] == [2, 2] and quarter["poster"]["ratio"] == pytest.approx(0.847, abs=5e-4)
    assert 0 < quarter["time"]["low"] <= quarter["time"]["median"] <= quarter["time"]["high"]
    page = paths[1].read_text()
    assert all(f"| {one.row.name} |" in page for one in measured) and "0.847" in page and "6.721" in page
    drawing = ET.fromstring(paths[2].read_text())
    assert len(drawing.findall("{*}circle")) == 2  # the poster's accumulation and ZeRO
    assert str(asked.data) not in paths[0].read_text()


def test_the_posters_numbers_stand_beside_its_own_rows():
    shown = [row for group in rows.PIX2PIX for row in group.rows if row.poster and row.name != "baseline"]
    assert {row.name: round(row.poster.ratio, 3) for row in shown} == {
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


@pytest.mark.parametrize("group", [*rows.PIX2PIX, *rows.VANILLA], ids=lambda group: f"batch-{group.batch}")
def test_every_group_has_its_own_base_and_rows_of_one_name_once(group):
    assert group.rows[0].name == "baseline" and not group.rows[0].words
    names = [row.name for row in group.rows]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("recipe", ["pix2pix-facades", "vanilla-mnist"])
def test_every_rows_config_is_valid(recipe, tmp_path):
    from paragan.config import load

    asked = rows.Asked(data=str(tmp_path), mnist=str(tmp_path))
    table = next(t for t in asked.tables() if t.recipe == recipe)
    for group in table.groups:
        for row in group.rows:
            running = table1._running(asked, table, group, row, tmp_path)
            config = load(recipe, running.words)
            assert (
                config.train.batch == group.batch * row.parts
                and config.g.micro_batches == config.d.micro_batches == row.parts
            )
            assert config.g.ema is None
            arguments = config.d.optimizer.arguments
            assert arguments["betas"] == [0.5, 0.999]
            plain = not any("optimizer" in word for word in row.words)
            assert (arguments.get("fused"), arguments.get("foreach")) == (False, False) if plain else True


def test_rounds_are_pieces_of_whole_updates_of_every_row(tmp_path):
    asked = rows.Asked(images=62, epochs=2, rounds=4, data=str(tmp_path))
    (table,) = asked.tables()
    for group in table.groups:
        pieces = list(table1._rounds(asked, table, group))
        assert len(pieces) == 8 and sum(pieces) == 2 * (62 // group.unit * group.unit)
        assert all(piece % group.unit == 0 and piece > 0 for piece in pieces)


def test_the_median_leaves_the_first_round_out():
    assert told.interval([9.0, 1.0, 1.2, 1.1]) == {"median": 1.1, "low": 1.0, "high": 1.2, "rounds": 3}
    assert told.interval([3.0, 1.0])["rounds"] == 2


def test_a_row_that_fails_says_why_and_the_others_are_measured(found):
    odd = found[2][-1]
    assert odd.error.startswith("precision: found fp16 on a CPU") and not odd.seconds
    assert all(one.error is None and one.metrics for one in found[2][:-1])
    assert "| odd | 1 | not run: precision: found fp16" in told.table(found[2])


def test_a_base_that_fails_ends_it(pairs):
    asked, table, group = small(pairs, 1, "baseline")
    broken = replace(table, words=("data.path=/nowhere",))
    with pytest.raises(RowError, match=r"^baseline: (?!ended).*nowhere"):
        table1.measured(asked, broken, group)


def test_a_process_that_is_killed_is_told(pairs, tmp_path):
    asked, table, group = small(pairs, 1, "baseline")
    running = table1._running(asked, table, group, group.rows[0], tmp_path / "row")
    running.start()
    running.ready()
    try:
        os.kill(running.processes[0].pid, signal.SIGKILL)
        with pytest.raises(RowError, match="baseline: ended with exit code -9"):
            running.train(1)
    finally:
        running.end()


def test_one_that_does_not_answer_is_not_waited_for(tmp_path, monkeypatch):
    running = Running("slow", "digits", (), 1, False, tmp_path / "row")
    monkeypatch.setattr("paragan.cli._table1_run._START_S", 0.01)
    try:
        running.start()
        with pytest.raises(RowError, match="slow: no answer in time"):
            running.ready()
    finally:
        (process,) = running.processes
        process.kill()
        running.end()
    assert process.returncode is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected --data FACADES, --mnist MNIST, or both"),
        (["--data", "x", "--images", "7"], "--images: found 7 images of pix2pix-facades, expected at least 8"),
        (["--data", "x", "--images", "15", "--ranks", "2"], "expected at least 16: one update of each row on 2 ranks"),
        (["--images", "many"], "--images"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(words, said, capsys):
    assert main(["bench", "table1", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_verb_writes_after_every_group(pairs, found, tmp_path, capsys, monkeypatch):
    table, measured = found[1:]
    states = []

    def instead(asked, table, group, pace):
        states.append([json.loads(path.read_text())["complete"] for path in tmp_path.glob("*.json")])
        return measured

    monkeypatch.setattr(table1, "measured", instead)
    monkeypatch.setattr(rows.Asked, "tables", lambda self: [replace(table, groups=table.groups * 2)])
    assert main(["bench", "table1", "--data", str(pairs), "--out", str(tmp_path)]) == 0
    assert states == [[], [False]]
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["complete"] is True
    written = sorted(path.name.partition("table1")[2] for path in tmp_path.iterdir())
    assert written == [".json", ".md", ".svg"] and capsys.readouterr().out.count("table1") == 3


def test_how_far_it_is(capsys, monkeypatch):
    now = iter([0.0, 60.0])
    monkeypatch.setattr(table1.time, "monotonic", lambda: next(now))
    table1.Pace(100.0).tell("round 1", 25.0)
    assert capsys.readouterr().err == "round 1: 1.0 min, about 3 min to go\n"
