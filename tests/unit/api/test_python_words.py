"""What a Python program reads: its own arguments in messages, a record of every run, however short."""

import traceback
import warnings

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.api.python_words import warn
from paragan.core.event import Event
from paragan.writers import console

WRONG = {
    "unknown key": {"lr": 1},
    "misspelt key": {"train.kmig": 1},
    "wrong type": {"train.batch": "many"},
    "wrong value in a list": {"penalties": [{"name": "r1", "weight": "x"}]},
    "two problems": {"train.batch": 0, "train.kimg": -1},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_train_wrong_settings_are_named_without_a_place_on_a_command_line(wrong, tmp_path):
    with pytest.raises(pg.ConfigError) as refusal:
        pg.train("digits", WRONG[wrong], out=tmp_path / "run")
    assert next(iter(WRONG[wrong])) in str(refusal.value)
    assert "command line" not in str(refusal.value)
    assert len(traceback.extract_tb(refusal.value.__traceback__)) < 6  # a notebook prints each frame


@pytest.mark.parametrize("wrong", WRONG)
def test_trainer_wrong_settings_are_named_without_a_file_that_no_user_has(wrong, tmp_path):
    nets = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))
    nets[0].latent = 4
    with pytest.raises(pg.ConfigError) as refusal:
        pg.Trainer(*nets, {"x": torch.randn(32, 3)}, settings=WRONG[wrong], out=tmp_path / "run").run()
    assert next(iter(WRONG[wrong])).split(".")[-1] in str(refusal.value)
    assert "Trainer:1" not in str(refusal.value) and "command line" not in str(refusal.value)


def test_warning_of_python_says_once_that_it_is_one():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("warning: a line")
        warn("another line")
    assert [str(one.message) for one in caught] == ["a line", "another line"]


@pytest.mark.parametrize("num_steps", [1, 4, 7])
def test_history_has_the_last_step_of_a_run_shorter_than_a_log_period(num_steps, tmp_path):
    small = {"data.size": 8, "train.batch": 16, "model.width": 4, "model.latent": 8, "evaluation.features": None}
    length = {"train.kimg": num_steps * 0.016, "every.sample_kimg": 0, "every.log_steps": 5}
    run = pg.train("digits", small | length, out=tmp_path / "run")
    steps = [line["step"] for line in run.history]
    assert steps == sorted({*range(5, num_steps + 1, 5), num_steps})
    assert all(line["images_per_s"] > 0 for line in run.history)


@pytest.mark.parametrize(("data", "noun"), [({"shape": [1, 8, 8]}, "images"), ({"tensors": ["row 4"]}, "samples")])
def test_console_counts_samples_that_are_no_images_as_samples(data, noun, tmp_path, capsys):
    writer = console.Writer(None, tmp_path)
    writer.write(Event(kind="start", step=0, images=0, values={"total_kimg": 1, "data": data}))
    writer._last_printed["step"] -= 100
    values = {"images_per_s": 7.0, "eta_s": 3.0, "data_wait": 0.0}
    writer.write(Event(kind="step", step=1, images=16, values=values))
    assert f"7 {noun}/s" in capsys.readouterr().out
