"""`train.executor: auto`: measured before a new run, told, written into its config, and kept to when it goes on."""

from dataclasses import replace
from math import prod

import pytest
import torch
from torch import nn

from paragan.api.networks import Networks
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.hardware import executors as compiling, precision
from paragan.runs import choose_executor
from paragan.runs.trial_steps import Timing, TrialRun
from tests.tiny_run import newest

WORDS = (
    *("train.threads=1", "data.size=8", "model={name: dcgan, latent: 4, width: 4}", "train.batch=8", "penalties=[]"),
    *("augment=null", "evaluation.features=null", "every.sample_kimg=0", "train.kimg=0.024"),
    *("g.precision=fp32", "d.precision=fp32"),  # `auto` depends on the processor
)
LONG = "train.kimg=8000"  # a million steps: half an hour at 2 ms


@pytest.fixture(autouse=True, params=[False, True], ids=["no-bf16", "bf16"])
def has_bf16(request, monkeypatch):
    """Every test runs as on a processor without fast bfloat16, and as on one with it."""
    monkeypatch.setattr(precision, "has_bf16", lambda device: request.param)
    return request.param


def config(*words):
    return read_recipe("digits", [*WORDS, "train.executor=auto", *words])


def way(config):
    """As short as it can be told."""
    return config.train.executor, config.g.precision, config.g.channels_last


class Clock:
    """Stands in for the measurement: milliseconds by what is measured."""

    def __init__(self, step_ms, set_up_s=0.0):
        self.step_ms, self.set_up_s, self.asked, self.budgets_s = step_ms, set_up_s, [], []

    def __call__(self, config, budget_s):
        self.asked.append(way(config))
        self.budgets_s.append(round(budget_s) if budget_s < 1e9 else budget_s)
        found = self.step_ms[way(config)]
        if isinstance(found, Exception):
            raise found
        return Timing(found / 1000, self.set_up_s if config.train.executor != "eager" else 0.0)


def choose(tmp_path, clock, *words, world=World()):  # noqa: B008 a world of one is immutable
    said = []
    found = choose_executor.choose_executor(config(*words), tmp_path / "run", False, world, said.append, measure=clock)
    return found, said


LAST, FIRST = ("eager", "fp32", True), ("eager", "fp32", False)
COMPILED = ("compile", "fp32", False)
DENSE = "model={name: mlp, latent: 4, g_widths: [8], d_widths: [8]}"


def test_fastest_executor_is_chosen_and_all_times_are_printed(tmp_path):
    found, said = choose(tmp_path, clock := Clock({LAST: 3.0, FIRST: 2.0, COMPILED: 1.0}, set_up_s=100.0), LONG)
    assert clock.asked == [*[LAST, FIRST] * 4, COMPILED] and clock.budgets_s == [10, *[20] * 7, float("inf")]
    assert way(found) == COMPILED and found.d.channels_last is False
    assert said == [
        "executor  eager fp32 channels-last: 3.00 ms a step",
        "executor  eager fp32: 2.00 ms a step",
        "executor  compile fp32: 1.00 ms a step, after 100 s of compiling",
        "executor  chosen: compile fp32",
    ]


def test_what_compiling_takes_counts(tmp_path):
    found, _ = choose(tmp_path, Clock({LAST: 3.0, FIRST: 2.0, COMPILED: 1.0}, set_up_s=1100.0), LONG)
    assert way(found) == FIRST


def test_a_short_run_is_not_compiled(tmp_path):
    found, said = choose(tmp_path, clock := Clock({LAST: 2.0, FIRST: 3.0}))
    assert clock.asked == [LAST, FIRST] * 4 and way(found) == LAST
    assert said[2] == "executor  compile: not tried, 0 s of steps are too few: compiling takes a minute or two"


@pytest.mark.parametrize(
    "error", [ConfigError("train.executor: found compile, which does not run here"), MemoryError("no memory")]
)
def test_executor_that_does_not_compile_is_reported_and_left_out(tmp_path, error):
    found, said = choose(tmp_path, Clock({LAST: 3.0, FIRST: 2.0, COMPILED: error}), LONG)
    assert way(found) == FIRST and said[2].startswith("executor  compile fp32: left out (") and str(error) in said[2]


def test_an_error_of_every_way_is_the_runs(tmp_path):
    with pytest.raises(ConfigError, match="loss: odd"):
        choose(tmp_path, Clock({LAST: ConfigError("loss: odd")}))


def test_what_was_given_stays_and_what_the_hardware_lacks_is_not_tried(tmp_path, has_bf16):
    clock = Clock({("eager", p, last): 1.0 for p in ("fp32", "bf16") for last in (True, False)})
    found, _ = choose(tmp_path, clock, "d.channels_last=false")
    assert clock.asked == [LAST, FIRST] * 4 and not found.d.channels_last
    clock.asked.clear()
    choose(tmp_path, clock, "d.precision=auto", DENSE)
    assert clock.asked == [FIRST] * (8 if has_bf16 else 4)  # dense networks have no layout
    clock.asked.clear()
    choose(tmp_path, clock, "g.precision=auto", DENSE)
    assert clock.asked == [FIRST] * 4  # never bf16 for G


def test_where_launches_are_recorded_that_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "can_record", lambda device: True)
    recorded = ("graphs", "fp32", False)
    found, _ = choose(tmp_path, Clock({LAST: 3.0, FIRST: 2.0, COMPILED: 1.5, recorded: 1.0}), LONG)
    assert way(found) == recorded


def test_players_that_train_at_the_same_time_are_measured_in_turns_and_not_compiled(tmp_path):
    found, said = choose(tmp_path, clock := Clock({LAST: 3.0, FIRST: 2.0}), LONG, "scheme=asynchronous")
    assert way(found) == FIRST and found.scheme.name == "asynchronous" and clock.asked == [LAST, FIRST] * 4
    assert said[2] == "executor  compile: not tried, the players train at the same time"


def train(tmp_path, *words):
    return main(["train", "digits", *WORDS, *words, "--out", str(tmp_path / "run")])


def test_a_run_keeps_to_what_it_has_chosen(tmp_path, capsys, monkeypatch):
    assert train(tmp_path, "train.executor=auto") == 0
    told = capsys.readouterr().out
    assert "executor  chosen: eager fp32" in told
    kept = read_recipe(str(tmp_path / "run/config.yaml"))
    assert way(kept) == ("eager", "fp32", "chosen: eager fp32 channels-last" in told)
    other = replace(kept.g, channels_last=not kept.g.channels_last)
    monkeypatch.setattr(choose_executor, "_fastest", lambda *given: replace(kept, g=other))  # another day's choice
    assert train(tmp_path, "train.executor=auto", "train.kimg=0.04") == 0
    told = capsys.readouterr().out
    assert "executor" not in told and "resuming at step 3" in told
    assert way(read_recipe(str(tmp_path / "run/config.yaml"))) == way(kept)
    assert train(tmp_path, "train.executor=auto", "--fresh") == 0
    assert way(read_recipe(str(tmp_path / "run/config.yaml"))) != way(kept)


class Drawing(nn.Module):
    """With dropout, whose draws a turn puts somewhere."""

    def __init__(self, inputs, *outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, prod(outputs)), nn.Dropout(0.5))
        self.outputs = outputs

    def forward(self, x, y=None):
        return self.layers(x).reshape(-1, *self.outputs)


class Judging(Drawing):
    def forward(self, x, y=None):
        return None, super().forward(x)


def test_measuring_moves_nothing_of_the_run(tmp_path):
    g, d = Drawing(4, 1, 8, 8), Judging(64, 1)
    torch.manual_seed(1)
    before, weights = torch.get_rng_state(), [weight.clone() for weight in (*g.parameters(), *d.parameters())]
    written = replace(config(), train=replace(config().train, executor="eager"))
    TrialRun(written, World(), Networks(g=g, d=d, latent=4, num_classes=0))(written, 20.0)
    assert torch.equal(before, torch.get_rng_state())
    assert all(map(torch.equal, weights, (*g.parameters(), *d.parameters())))
    settings = ("g.channels_last=true", "d.channels_last=true", "g.precision=fp32", "d.precision=fp32")
    for name, executor in (("measured", "auto"), ("plain", "eager")):
        assert train(tmp_path / name, *settings, f"train.executor={executor}") == 0
    one, other = (newest(tmp_path / name / "run") for name in ("measured", "plain"))
    files = sorted(file.name for file in one.glob("*.safetensors"))
    assert files and all((one / name).read_bytes() == (other / name).read_bytes() for name in files)


def test_a_rank_measures_its_share_of_the_batch_and_compiles_nothing():
    world = World(rank=0, size=2)
    assert TrialRun(config(), world, None).rows == 4
    assert "other ranks would wait" in str(choose_executor._uncompiled(1e9, world, False))
