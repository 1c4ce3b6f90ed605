"""`python -m benchmarks.cellular_table`: methods take turns, are timed by routine, and appear in the tables."""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cellular_table import methods, report, rows, run
from paragan.cli.main import main
from paragan.coevolution.profile import ROUTINES
from paragan.features.mnist_cnn import MnistCnn

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


def small_options(digits, *shapes, **changes):
    defaults = {"mnist": str(digits), "shapes": shapes, "batches": 2, "iterations": 2, "workers": 1}
    return rows.CellularOptions(**{**defaults, **changes})


@pytest.fixture(scope="module")
def measured(digits):
    options = small_options(digits, "1x2")
    (grid,) = options.grids()
    run.measure(options, grid)
    return grid


@pytest.mark.slow
def test_one_core_and_upstream_style_loop_are_timed_by_routine(measured):
    for name in (rows.ONE_CORE, rows.UPSTREAM):
        iterations = measured.methods[name].iterations
        assert len(iterations) == 2
        for iteration in iterations:
            assert list(iteration.cpu) == list(ROUTINES)
            assert iteration.cpu["train"] > 0 and iteration.wall_s > 0
    for iteration in measured.methods[rows.ONE_CORE].iterations:
        assert list(iteration.wall) == list(ROUTINES)
        assert 0.5 * iteration.wall_s < sum(iteration.wall.values()) <= 1.001 * iteration.wall_s
    theirs, ours = (measured.methods[n].iterations for n in (rows.UPSTREAM, rows.ONE_CORE))
    ratios = sorted(a.cpu_s / b.cpu_s for a, b in zip(theirs, ours, strict=True))
    assert ratios[0] <= measured.upstream_ratio <= ratios[-1]


@pytest.mark.slow
def test_unavailable_method_has_a_reason(measured, digits):
    assert measured.methods[rows.WORKERS].reason == "there is only one core, or one cell"
    assert measured.speed_up is measured.core_efficiency is measured.weak_scaling(measured) is None
    grid = rows.GridResult("1x1", 1)
    with pytest.raises(methods.MethodUnavailableError, match="disabled by --no-upstream"):
        methods.set_up(small_options(digits, upstream=False), grid, rows.UPSTREAM, digits)


@pytest.mark.slow
@pytest.mark.distributed
def test_workers_are_measured_like_one_core(digits):
    options = small_options(digits, "1x2", workers=2, upstream=False, iterations=1)
    (grid,) = options.grids()
    run.measure(options, grid)
    (one,), (many,) = (grid.methods[name].iterations for name in (rows.ONE_CORE, rows.WORKERS))
    assert grid.workers == 2 and grid.speed_up == one.wall_s / many.wall_s and grid.weak_scaling(grid) == 1
    assert list(many.cpu) == list(ROUTINES) and many.cpu["train"] > 0
    assert sum(many.wall.values()) <= many.wall_s  # a mean over both, not a sum
    assert many.cpu["gather"] > one.cpu["gather"]


def iteration(wall_s, cpu_s, **parts):
    return rows.Iteration(wall_s, {"gather": wall_s, **parts}, {"gather": cpu_s, **parts})


def grid_result(shape, workers, one, many, upstream=None):
    """one, many, upstream: (wall, CPU) of each iteration."""
    grid = rows.GridResult(shape, workers)
    for name, seconds in ((rows.ONE_CORE, one), (rows.WORKERS, many), (rows.UPSTREAM, upstream)):
        iterations = [iteration(*pair) for pair in seconds or []]
        grid.methods[name] = rows.MethodResult(iterations, None if seconds else "not today")
    return grid


def test_speed_up_weak_scaling_and_cpu_efficiency():
    small = grid_result("2x2", 4, [(8.0, 8.0), (8.0, 8.0)], [(2.0, 8.0), (4.0, 10.0)], [(24.0, 24.0), (32.0, 32.0)])
    large = grid_result("4x4", 5, [(40.0, 40.0)] * 2, [(20.0, 50.0)] * 2)
    assert small.speed_up == 3.0  # the median of 4 and 2
    assert small.core_efficiency == pytest.approx((1 + 0.8) / 2)
    assert small.upstream_ratio == 3.5 and large.upstream_ratio is None
    assert (small.max_cells, large.max_cells) == (1, 4)
    assert large.weak_scaling(small) == pytest.approx(3.0 / (20.0 / 4))
    assert small.weak_scaling(small) == 1


def test_slides_weak_scaling_by_shape():
    assert [round(rows.slides_weak_scaling(shape), 2) for shape in rows.SLIDES_MINUTES] == [1.0, 0.54, 0.31]
    assert rows.slides_weak_scaling("5x5") is None
    parts = [one for name, one in rows.SLIDES_ROUTINES.items() if name != "overall"]
    for place, total in enumerate(rows.SLIDES_ROUTINES["overall"]):
        assert sum(part[place] for part in parts) == pytest.approx(total, abs=0.11)


@pytest.mark.slow
def test_report_writes_json_and_markdown(measured, digits, tmp_path):
    options = small_options(digits, "1x2", "2x2")
    other = grid_result("2x2", 2, [(8.0, 8.0)] * 2, [(5.0, 9.0)] * 2)
    paths = report.write(options, [measured, other], tmp_path, "2026-01-02", complete=True)
    assert [path.name for path in paths] == ["2026-01-02-cellular.json", "2026-01-02-cellular.md"]
    text = paths[0].read_text()
    record = json.loads(text)
    assert str(digits) not in text and record["complete"] is True and record["threads"] == 1
    assert record.keys() >= {"date", "machine", "cores", "torch", "note", "options", "grids", "slides"}
    first, second = record["grids"]
    assert first["shape"] == "1x2" and len(first["methods"]["one core"]["iterations"]) == 2
    assert first["methods"]["distributed"] == {"not_run": "there is only one core, or one cell"}
    assert second["speed_up"] == 1.6 and second["weak_scaling"] == 1 and first["weak_scaling"] is None
    page = paths[1].read_text()
    assert "| 2x2 | 8.000 | 2 | 5.000 | 1.600 |" in page and "8.531" in page  # ours, and the slides'
    assert all(f"| {name} |" in page for name in (*ROUTINES, "overall"))
    assert "1x2, distributed: not run: there is only one core, or one cell." in page
    assert not [line for line in page.splitlines() if line.startswith("|") and line.count("|") not in (9, 14)]


def test_report_marks_grids_with_more_workers_than_cores():
    crowded = grid_result("2x2", 4, [(8.0, 8.0)], [(5.0, 9.0)])
    record = {"date": "", "machine": "", "cores": 2, "torch": "", "note": ""}
    assert "More workers than cores: 2x2" in report.page(record, [crowded])
    assert "More workers" not in report.page(record, [replace(crowded, workers=2)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--mnist DIR"),
        (("--mnist", "/nowhere"), "/nowhere"),
        (("--mnist", "x", "--shapes", "3x"), "'3x' is not a grid; use ROWSxCOLUMNS"),
        (("--mnist", "x", "--shapes", ","), "--shapes is empty"),
        (("--mnist", "x", "--batches", "0"), "--batches"),
    ],
)
def test_invalid_options_exit_2_with_one_line(words, message, tmp_path, capsys):
    assert main(["bench", "cellular", "--out", str(tmp_path / "out"), *words]) == 2
    line = capsys.readouterr().err.strip()
    assert message in line and "\n" not in line
    assert not (tmp_path / "out").exists()


def test_command_writes_and_prints_both_tables(digits, tmp_path, capsys):
    words = ("--shapes", "1x1", "--batches", "1", "--iterations", "1", "--no-upstream", "--workers", "1")
    assert main(["bench", "cellular", "--mnist", str(digits), "--out", str(tmp_path / "new" / "out"), *words]) == 0
    (page,) = (tmp_path / "new" / "out").glob("*-cellular.md")
    printed = capsys.readouterr()
    assert page.read_text() in printed.out and "1x1, iteration 1 of 1" in printed.err
    (record,) = (tmp_path / "new" / "out").glob("*-cellular.json")
    assert json.loads(record.read_text())["complete"] is True
