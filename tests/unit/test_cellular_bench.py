"""`paragan bench cellular`: ways to train a grid are played in turn, timed by routine, and the tables tell them."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from paragan.cli import _cellular as cellular, _cellular_rows as rows, _cellular_sides as sides, _cellular_told as told
from paragan.cli.main import main
from paragan.coevolution.profile import ROUTINES
from paragan.evaluation.extractors import MnistCnn

NUM = {"train": 1100, "t10k": 120}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Four idx files of noise and a classifier that has learnt nothing."""
    folder, draw = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    for part, num in NUM.items():
        images, labels = draw.integers(0, 256, (num, 28, 28), np.uint8), np.arange(num, dtype=np.uint8) % 10
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes(), 1))
    np.savez(folder / "mnist_cnn.npz", **{k: v.numpy() for k, v in MnistCnn().state_dict().items()})
    return folder


def asked(digits, *shapes, **changes):
    return rows.Asked(
        **{"mnist": str(digits), "shapes": shapes, "batches": 2, "iterations": 2, "workers": 1, **changes}
    )


@pytest.fixture(scope="module")
def measured(digits):
    question = asked(digits, "1x2")
    (grid,) = question.grids()
    cellular.measure(question, grid)
    return grid


def test_one_core_and_the_upstream_style_loop_are_timed_by_routine(measured):
    for name in (rows.ONE_CORE, rows.UPSTREAM):
        found = measured.sides[name].rounds
        assert len(found) == 2
        for played in found:
            assert list(played.cpu) == list(ROUTINES)
            assert played.cpu["train"] > 0 and played.wall_s > 0
    for played in measured.sides[rows.ONE_CORE].rounds:
        assert list(played.wall) == list(ROUTINES)
        assert 0.5 * played.wall_s < sum(played.wall.values()) <= 1.001 * played.wall_s
    theirs, ours = (measured.sides[n].rounds for n in (rows.UPSTREAM, rows.ONE_CORE))
    ratios = sorted(a.cpu_s / b.cpu_s for a, b in zip(theirs, ours, strict=True))
    assert ratios[0] <= measured.upstream_ratio <= ratios[-1]


def test_what_cannot_be_measured_says_why(measured, digits, monkeypatch):
    assert measured.sides[rows.WORKERS].reason == "there is one core, or one cell"
    assert measured.speed_up is measured.core_efficiency is measured.weak_scaling(measured) is None
    grid = rows.Grid("1x1", 1)
    with pytest.raises(sides.Missing, match="not asked for"):
        sides.started(asked(digits, upstream=False), grid, rows.UPSTREAM, digits)
    monkeypatch.setattr(sides, "_UPSTREAM", "benchmarks.nowhere")
    with pytest.raises(sides.Missing, match="from a checkout"):
        sides.started(asked(digits), grid, rows.UPSTREAM, digits)


@pytest.mark.slow
@pytest.mark.distributed
def test_workers_are_measured_beside_one_core(digits):
    question = asked(digits, "1x2", workers=2, upstream=False, iterations=1)
    (grid,) = question.grids()
    cellular.measure(question, grid)
    (one,), (many,) = (grid.sides[name].rounds for name in (rows.ONE_CORE, rows.WORKERS))
    assert grid.workers == 2 and grid.speed_up == one.wall_s / many.wall_s and grid.weak_scaling(grid) == 1
    assert list(many.cpu) == list(ROUTINES) and many.cpu["train"] > 0
    assert sum(many.wall.values()) <= many.wall_s  # a mean over both, not a sum
    assert many.cpu["gather"] > one.cpu["gather"]


def played(wall_s, cpu_s, **parts):
    return rows.Played(wall_s, {"gather": wall_s, **parts}, {"gather": cpu_s, **parts})


def grid(shape, workers, one, many, upstream=None):
    """one, many, upstream: (wall, CPU) of each round."""
    found = rows.Grid(shape, workers)
    for name, seconds in ((rows.ONE_CORE, one), (rows.WORKERS, many), (rows.UPSTREAM, upstream)):
        found.sides[name] = rows.Side([played(*pair) for pair in seconds or []], None if seconds else "not today")
    return found


def test_speed_up_weak_scaling_and_cpu():
    small = grid("2x2", 4, [(8.0, 8.0), (8.0, 8.0)], [(2.0, 8.0), (4.0, 10.0)], [(24.0, 24.0), (32.0, 32.0)])
    large = grid("4x4", 5, [(40.0, 40.0)] * 2, [(20.0, 50.0)] * 2)
    assert small.speed_up == 3.0  # the median of 4 and 2
    assert small.core_efficiency == pytest.approx((1 + 0.8) / 2)
    assert small.upstream_ratio == 3.5 and large.upstream_ratio is None
    assert (small.most_cells, large.most_cells) == (1, 4)
    assert large.weak_scaling(small) == pytest.approx(3.0 / (20.0 / 4))
    assert small.weak_scaling(small) == 1


def test_the_slides_scale_weakly():
    assert [round(rows.slides_weak(shape), 2) for shape in rows.SLIDES_MINUTES] == [1.0, 0.54, 0.31]
    assert rows.slides_weak("5x5") is None
    parts = [one for name, one in rows.SLIDES_ROUTINES.items() if name != "overall"]
    for place, total in enumerate(rows.SLIDES_ROUTINES["overall"]):
        assert sum(part[place] for part in parts) == pytest.approx(total, abs=0.11)


def test_the_files_are_complete(measured, digits, tmp_path):
    question = asked(digits, "1x2", "2x2")
    other = grid("2x2", 2, [(8.0, 8.0)] * 2, [(5.0, 9.0)] * 2)
    paths = told.write(question, [measured, other], tmp_path, "2026-01-02", complete=True)
    assert [path.name for path in paths] == ["2026-01-02-cellular.json", "2026-01-02-cellular.md"]
    text = paths[0].read_text()
    record = json.loads(text)
    assert str(digits) not in text and record["complete"] is True and record["threads"] == 1
    assert record.keys() >= {"date", "machine", "cores", "torch", "note", "asked", "grids", "slides"}
    first, second = record["grids"]
    assert first["shape"] == "1x2" and len(first["sides"]["one core"]["iterations"]) == 2
    assert first["sides"]["distributed"] == {"not_run": "there is one core, or one cell"}
    assert second["speed_up"] == 1.6 and second["weak_scaling"] == 1 and first["weak_scaling"] is None
    page = paths[1].read_text()
    assert "| 2x2 | 8.000 | 2 | 5.000 | 1.600 |" in page and "8.531" in page  # ours, and the slides'
    assert all(f"| {name} |" in page for name in (*ROUTINES, "overall"))
    assert "1x2, distributed: not run: there is one core, or one cell." in page
    assert not [line for line in page.splitlines() if line.startswith("|") and line.count("|") not in (9, 14)]


def test_more_workers_than_cores_are_told(digits, monkeypatch):
    monkeypatch.setattr(told, "num_cores", lambda: 2)
    crowded = grid("2x2", 4, [(8.0, 8.0)], [(5.0, 9.0)])
    record = {"date": "", "machine": "", "cores": 2, "torch": "", "note": ""}
    assert "More workers than cores: 2x2" in told.page(record, [crowded])
    assert "More workers" not in told.page(record, [replace(crowded, workers=2)])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "--mnist DIR"),
        (("--mnist", "/nowhere"), "/nowhere"),
        (("--mnist", "x", "--shapes", "3x"), "'3x', expected ROWSxCOLUMNS"),
        (("--mnist", "x", "--shapes", ","), "--shapes: found none"),
        (("--mnist", "x", "--batches", "0"), "--batches"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(words, expected, tmp_path, capsys):
    assert main(["bench", "cellular", "--out", str(tmp_path / "out"), *words]) == 2
    line = capsys.readouterr().err.strip()
    assert expected in line and "\n" not in line
    assert not (tmp_path / "out").exists()


def test_the_command_writes_both_tables(digits, tmp_path, capsys):
    words = ("--shapes", "1x1", "--batches", "1", "--iterations", "1", "--no-upstream", "--workers", "1")
    assert main(["bench", "cellular", "--mnist", str(digits), "--out", str(tmp_path / "new" / "out"), *words]) == 0
    (page,) = (tmp_path / "new" / "out").glob("*-cellular.md")
    said = capsys.readouterr()
    assert page.read_text() in said.out and "1x1, iteration 1 of 1" in said.err
    (record,) = (tmp_path / "new" / "out").glob("*-cellular.json")
    assert json.loads(record.read_text())["complete"] is True
