"""`python -m benchmarks.cellular_table`: numbers of its tables, the smallest case, and what it refuses."""

import gzip
import json
import struct

import numpy as np
import pytest

from benchmarks.cellular_table import rows
from benchmarks.cellular_table.__main__ import app
from benchmarks.command import run_command

NUM = {"train": 1100, "t10k": 120}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Four idx files of noise."""
    folder, draw = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0)
    for part, num in NUM.items():
        images, labels = draw.integers(0, 256, (num, 28, 28), np.uint8), np.arange(num, dtype=np.uint8) % 10
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes(), 1))
    return folder


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
    assert run_command(app, "cellular_table", ["--out", str(tmp_path / "out"), *words]) == 2
    line = capsys.readouterr().err.strip()
    assert message in line and "\n" not in line
    assert not (tmp_path / "out").exists()


def test_command_writes_and_prints_both_tables(digits, tmp_path, capsys):
    words = ("--shapes", "1x1", "--batches", "1", "--iterations", "1", "--no-upstream", "--workers", "1")
    assert (
        run_command(app, "cellular_table", ["--mnist", str(digits), "--out", str(tmp_path / "new" / "out"), *words])
        == 0
    )
    (page,) = (tmp_path / "new" / "out").glob("*-cellular.md")
    printed = capsys.readouterr()
    assert page.read_text() in printed.out and "1x1, iteration 1 of 1" in printed.err
    (record,) = (tmp_path / "new" / "out").glob("*-cellular.json")
    assert json.loads(record.read_text())["complete"] is True
