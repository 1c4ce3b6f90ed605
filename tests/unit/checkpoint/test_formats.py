"""Runs and exported generators of every format that a version wrote are read, sampled and resumed by this one."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import paragan as pg
from paragan.checkpoint import manifest
from paragan.config import config_tree
from tests.golden import stored_run

FORMATS = sorted(stored_run.HERE.glob("format_*"), key=lambda path: path.name)


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def stored(request, tmp_path) -> Path:
    return shutil.copytree(request.param, tmp_path / "stored")


def expected(stored: Path, name: str) -> dict[str, object]:
    values = json.loads((stored / "expected.json").read_text())[name]
    return {key: pytest.approx(numbers, abs=1e-4) for key, numbers in values.items()}


def test_every_format_has_a_stored_run():
    assert [path.name for path in FORMATS] == [f"format_{number}" for number in range(1, manifest.FORMAT + 1)]
    assert config_tree.FORMAT == manifest.FORMAT == 1, "store a run of the new format, and upgrade the former one"


def test_stored_run_declares_its_format(stored):
    number = int(next(path.name for path in FORMATS if path.name).removeprefix("format_"))
    assert yaml.safe_load((stored / "run" / "config.yaml").read_text())["format"] == number
    (newest,) = (stored / "run" / "checkpoints").glob("step-*/manifest.json")
    assert json.loads(newest.read_text())["format"] == number


def test_stored_run_is_sampled_and_resumed(stored):
    run = pg.Run(stored / "run")
    assert stored_run.described(run) == expected(stored, "stored")
    assert stored_run.described(run.resume(stored_run.LONGER)) == expected(stored, "resumed")


def test_stored_generator_is_loaded(stored):
    images = pg.load(stored / "generator.safetensors").sample(2, seed=0)
    assert images.tensor.flatten()[::7].tolist() == expected(stored, "stored")["pixels"]
