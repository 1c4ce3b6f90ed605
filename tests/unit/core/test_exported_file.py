"""Advice on a missing file of weights."""

from pathlib import Path

import pytest

from paragan.core.command import advise_missing


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARAGAN_COMMAND", "paragan")


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        (
            "runs/flow-digits/export/generator.safetensors",
            "run `paragan train flow-digits`, then `paragan export runs/flow-digits`",
        ),
        ("runs/mine/export/generator.safetensors", "run `paragan export runs/mine`"),
        ("my runs/flow-digits/export/generator.safetensors", "run `paragan export 'my runs/flow-digits'`"),
        ("nowhere", "give a run folder, or a file of `paragan export`"),
    ],
)
def test_advice_on_a_missing_file_names_the_commands_that_write_it(path, advice):
    assert advise_missing(Path(path)) == advice


def test_advice_on_a_trained_run_is_to_export_it():
    Path("runs/flow-digits").mkdir(parents=True)
    path = Path("runs/flow-digits/export/generator.safetensors")
    assert advise_missing(path) == "run `paragan export runs/flow-digits`"
