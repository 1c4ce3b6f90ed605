"""From the command's entry to `optimizer.step` a reader passes ten functions, and can name them."""

import sys
from pathlib import Path

import pytest
import torch

import paragan
from paragan.__main__ import entry
from paragan.game.optimizer_calls import runs_in_memory_order

PACKAGE = str(Path(paragan.__file__).parent)
WAY = [
    "entry", "main", "train_command", "start_training", "train_run",  # the command line, and the run in its folder
    "run", "step", "update", "apply_gradients", "step_if",  # the trainer, the scheme, the player
]  # fmt: skip


class Arrived(KeyboardInterrupt):
    pass


def test_way_from_the_entry_to_the_first_optimizer_step(tmp_path, monkeypatch):
    runs_in_memory_order(torch.optim.Adam)  # probes torch with steps of a small weight, once per process
    found = []

    def arrive(*arguments, **keywords):
        frame = sys._getframe()
        while frame is not None:
            if frame.f_code.co_filename.startswith(PACKAGE):
                found.append(frame.f_code.co_name)
            frame = frame.f_back
        raise Arrived

    monkeypatch.setattr(torch.optim.Adam, "step", arrive)
    words = ["data.size=8", "model.width=4", "every.sample_kimg=0", "evaluation.features=null"]
    monkeypatch.setattr(sys, "argv", ["paragan", "train", "digits", *words, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        entry()
    assert found[::-1] == WAY
