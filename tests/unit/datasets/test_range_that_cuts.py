"""A range that most values lie outside of is said before they become black or white."""

import numpy as np
import pytest
from PIL import Image

from paragan.core.option_types import Choice
from paragan.datasets import folder, npz
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.image_files import tiff


@pytest.mark.parametrize(
    ("suffix", "dtype", "high", "limits", "fix"),
    [
        ("png", np.uint8, 255, (0, 1), "leave data.range out"),
        ("jpg", np.uint8, 255, (200, 255), "leave data.range out"),
        ("tif", np.uint16, 4095, (0, 255), "pass data.range=[0,4095]"),
        ("npz", np.uint8, 255, (0, 1), "leave data.range out"),
        ("png", np.uint8, 255, (0, 200), None),
        ("jpg", np.uint8, 255, (0, 255), None),
        ("npz", np.uint8, 255, (100, 255), None),
    ],
)
def test_a_range_that_cuts_most_values_is_said_by_check_and_training(tmp_path, suffix, dtype, high, limits, fix):
    levels = np.linspace(0, high, 16 * 16 * 3).astype(dtype).reshape(16, 16, 3)
    if suffix == "npz":
        np.savez(tmp_path / "x.npz", images=np.stack([levels] * 4))
    for number in range(4 if suffix != "npz" else 0):
        if suffix == "tif":
            (tmp_path / f"{number}.tif").write_bytes(tiff(levels))
        else:
            Image.fromarray(levels).save(tmp_path / f"{number}.{suffix}")
    path = str(tmp_path / "x.npz") if suffix == "npz" else str(tmp_path)
    kind = npz if suffix == "npz" else folder
    options = kind.Options(path=path, range=limits)
    name = "npz" if suffix == "npz" else "folder"
    report = check_dataset(path, data=Choice(name, options))
    for lines in (kind.source(options, "train").notices, report.warnings):
        about = [line for line in lines if "data.range" in line]
        assert len(about) == (fix is not None), lines
        assert all(fix in line and "{:g},{:g}".format(*limits) in line and "%" in line for line in about)


@pytest.mark.parametrize(
    ("dtype", "high", "limits", "is_said"),
    [
        (np.uint8, 255, (0, 1), True),
        (np.uint8, 255, (-1, 1), True),
        (np.uint16, 65535, (0, 255), True),
        (np.uint16, 4095, (1000, 1400), False),  # a window on purpose
    ],
)
def test_a_tiny_range_is_said_where_most_values_are_background(tmp_path, dtype, high, limits, is_said):
    levels = np.zeros((16, 16, 3), dtype)
    levels[4:9, 4:9] = high
    levels[9:, 9:] = 1200 if high == 4095 else 0
    for number in range(4):
        (tmp_path / f"{number}.tif").write_bytes(tiff(np.maximum(levels, max(limits[0], 0)).astype(dtype)))
    notices = folder.source(folder.Options(path=str(tmp_path), range=limits), "train").notices
    assert any("lie outside of data.range" in line for line in notices) == is_said, notices
