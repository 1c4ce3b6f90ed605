"""Collapses that a run meets: a poisoned batch, and rates that are too high."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError, DivergedError
from paragan.loading.order import Order
from paragan.report.record import open_record
from tests.unit.engine.test_rollback import RUN, differing, rollbacks, tensors


def poisoned_points(size: float) -> torch.Tensor:
    """Points on a circle; two of batch 10, which the run meets once, as no decoder should return them."""
    angles = torch.arange(6400) * 0.7
    points = torch.stack([angles.cos(), angles.sin()], 1)
    rows = Order(6400, 0).at(np.array([160, 161]))
    points[rows] = torch.tensor([[size, size], [-size, -size]])
    return points


class Maker(nn.Module):
    latent = 2

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, z):
        return self.layer(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 4), nn.LeakyReLU(0.2), nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x).squeeze(1)


def train_on_poison(folder, size, **settings):
    sgd = {"name": "SGD", "lr": 0.1, "arguments": {}}
    every = {"every.sample_kimg": 0, "every.save_kimg": 0.08, "every.log_steps": 5}
    options = {"train.batch": 16, "train.kimg": 1.92, "g.optimizer": sgd, "d.optimizer": sgd, **every, **settings}
    torch.manual_seed(0)
    data = {"x": poisoned_points(size)}
    return pg.Trainer(Maker(), Critic(), data, loss="hinge", settings=options, out=folder).run()


def test_poisoned_batch_without_a_finite_gradient_is_skipped_without_a_rollback(tmp_path):
    run = train_on_poison(tmp_path, 1e25, **{"rollback.max_rollbacks": 0, "train.kimg": 0.32})
    texts = [line["text"] for line in run.records("event")]
    assert texts == ["warning: d: updates skipped, because their gradients were not finite: 1"]
    assert run.is_finished


def test_rollback_after_a_poisoned_batch_continues_past_it(tmp_path):
    """The gradient of this one is finite, and G's all later gradients are not."""
    few_files = {"every.save_kimg": 0.8, "writers": ["jsonl"]}
    with pytest.raises(DivergedError, match=r"g: no update of the last \d+ was made"):
        train_on_poison(tmp_path / "plain", 1e18, **few_files)
    run = train_on_poison(tmp_path / "guarded", 1e18, **few_files, **{"rollback.lr_factor": 1.0})
    (line,) = [line for line in run.records("event") if "rollback" in line]
    assert (line["step"], line["rollback"]["to_step"]) == (110, 0)
    assert run.is_finished
    assert run.records("checkpoint")[-1]["step"] == 120 + 110
    assert all(weight.abs().max() < 10 for weight in run.generator.parameters())


# D overflows at its second update
FAST = (
    "d.optimizer={name: SGD, lr: 1e25, arguments: {}}",
    "every.sample_kimg=0",
    "every.save_kimg=0.8",
    "train.kimg=9.6",
)


def fast(folder, *words):
    return build.trainer(read_recipe("digits", [*RUN, *FAST, *words]), folder, print, lambda: False)


def test_rollback_counts_skipped_updates_across_a_kill(tmp_path):
    whole = fast(tmp_path / "whole")
    (expected,) = [event.step for event in whole.run(num_steps=110) if rollbacks([event])]
    list(fast(tmp_path / "killed").run(num_steps=70))  # saved at step 50
    resumed = fast(tmp_path / "killed")
    assert resumed.resume()
    assert [event.step for event in resumed.run(num_steps=60) if rollbacks([event])] == [expected]
    assert differing(tensors(whole), tensors(resumed)) == []


def test_rollback_of_a_rate_that_stays_too_high_ends_with_exit_code_2(tmp_path, capsys):
    words = (*RUN, *FAST, "rollback.max_rollbacks=1", "every.log_steps=50")
    assert main(["train", "digits", *words, "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert "rollback 1 of 1, to the players of step 0; learning rates unchanged. Reason: step 1" in out
    *warnings, error = err.splitlines()
    assert all(line.startswith("warning: ") for line in warnings) and "another collapse after 1 rollbacks" in error
    found = json.loads((tmp_path / "exit.json").read_text())
    assert found["code"] == 2 and "another collapse after 1 rollbacks" in found["reason"]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["rollback"]["to_step"] for line in lines if "rollback" in line] == [0]
    record = open_record(tmp_path)
    record.read()
    assert record.history.total_kimg == 9.6 + 1.6
    assert any("rollback 1 of 1" in text for _, text in record.history.events)


@pytest.mark.slow
def test_replay_after_a_rollback_is_equal_and_that_of_its_step_is_refused(tmp_path):
    from paragan.extensions.replay.replay import replay_run

    words = ("d.optimizer.lr=1e25", "rollback.lr_factor=1e-27", "train.kimg=0.32", "every.sample_kimg=0")
    assert main(["train", "digits", *RUN, *words, "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, second = (line["step"] for line in lines if "rollback" in line)
    assert replay_run(tmp_path, step=second + 6)[0] == 0
    with pytest.raises(ConfigError, match="end with a rollback, which is not repeated; pass another --step"):
        replay_run(tmp_path, step=first)
