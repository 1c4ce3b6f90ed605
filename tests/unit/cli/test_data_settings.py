"""`paragan data check PATH data.KEY=value` reads as `train` with these settings."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paragan.cli.main import main
from paragan.config import read_data_settings, read_recipe
from paragan.datasets import folder
from paragan.datasets.preparation.dataset_check import check_dataset

NOISE = np.random.default_rng(0)


def noise(*shape, high=256):
    return NOISE.integers(0, high, shape).astype(np.uint8 if high == 256 else np.uint16)


def put(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["data.range=[0,4095]"], {"range": None, "warnings": ()}),
        (["data.classes=none"], {"classes": {}}),
        (["data.held_out=0.5"], {"splits": {"train": 2, "held_out": 10}}),
        (["data.size=6x8"], {"size": "6x8", "num_smaller": 0}),
        (["data.labels=labels.csv"], {"classes": {"x": 4, "y": 4, "z": 4}}),
        ([], {"range": [0.0, 4095.0], "is_grey": True}),
    ],
    ids=str,
)
def test_check_reads_as_training_does_and_repeats_its_settings(tmp_path, capsys, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        pixels = noise(10, 8, high=4096).astype(np.uint16)
        pixels[0, :2] = 0, 4095
        put(Path("deep", "ab"[number % 2], f"{number}.png"), pixels)
    rows = "".join(f"{number}.png,{'xyz'[number % 3]}\n" for number in range(12))
    Path("labels.csv").write_text("file_name,label\n" + rows)
    main(["data", "check", "deep", "--json", *words])
    report = json.loads(capsys.readouterr().out)
    for key, value in expected.items():
        assert report[key] == (list(value) if isinstance(value, tuple) else value), key
    printed = shlex.split(report["command"])
    assert set(words) <= set(printed)
    assert len({word.partition("=")[0] for word in printed[3:]}) == len(printed[3:])  # each once
    assert f"holds out {report['splits']['held_out']}" in report["summary"]
    assert "data.channels=1" in printed and any(word.startswith("data.range=[0,4095") for word in printed) == (
        "data.range=[0,4095]" in words or report["range"] is not None
    )
    options = read_recipe("own", printed[3:]).data.options  # train takes it
    assert (
        folder.source(options, "train").class_sizes()
        == folder.source(read_data_settings("folder", "deep", words).options, "train").class_sizes()
    )


@pytest.mark.parametrize("words", [["data.lables=x"], ["train.batch=4"], ["nonsense"], ["data.range=[5,1]"]], ids=str)
def test_check_refuses_settings_that_training_refuses(tmp_path, capsys, words):
    for number in range(3):
        put(tmp_path / f"{number}.png", noise(8, 8))
    assert main(["data", "check", str(tmp_path), *words]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1


@pytest.mark.parametrize("side", [8, 13, 28, 40, 100, 7])
def test_the_suggested_size_enlarges_no_image_and_fits_the_recipe(tmp_path, side):
    for number in range(4):
        put(tmp_path / f"{number}.png", noise(side, side))
    assert check_dataset(str(tmp_path)).size == max(8, min(64, side - side % 4))
