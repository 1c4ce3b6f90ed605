"""`train.layout: auto` and layouts by hand: written into the config of the run, refused where they cannot work."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest
import torch
from safetensors.torch import load_file

from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.game.options import LayoutOptions
from paragan.runs import choose_layout, layout_search, layout_trial
from tests.tiny_run import newest

WORDS = (
    *("train.threads=1", "data.size=8", "model={name: dcgan, latent: 4, width: 5}", "train.batch=8", "penalties=[]"),
    *("augment=null", "evaluation.features=null", "every.sample_kimg=0", "train.kimg=0.024"),
    *("g.precision=fp32", "d.precision=fp32"),
)
LAYOUT = "g.layout={pad: {blocks.1.conv: [16, 8]}, taps: [blocks.2.conv]}"
FOUND = LayoutOptions({"blocks.1.conv": (16, 8)}, ("blocks.2.conv",))


def train(folder, *words):
    return main(["train", "digits", *WORDS, *words, "--out", str(folder / "run")])


def with_layout(config):
    return replace(config, g=replace(config.g, layout=FOUND, channels_last=False), d=replace(config.d, micro_batches=2))


def choose(config, out, fresh=False, find=with_layout):
    said = []
    return choose_layout.choose_layout(config, out, fresh, World(), said.append, find=find), said


def test_run_with_a_layout_has_the_state_of_one_without(tmp_path):
    sgd = ("g.optimizer={name: SGD, lr: 0.1}", "d.optimizer={name: SGD, lr: 0.1}")  # Adam enlarges rounding
    for name, words in (("plain", sgd), ("laid-out", (*sgd, LAYOUT))):
        assert train(tmp_path / name, *words) == 0
    plain, other = (newest(tmp_path / name / "run") for name in ("plain", "laid-out"))
    files = sorted(file.name for file in plain.glob("*.safetensors"))
    assert files == sorted(file.name for file in other.glob("*.safetensors")) and files
    for file in files:
        one, two = load_file(plain / file), load_file(other / file)
        assert {key: value.shape for key, value in one.items()} == {key: value.shape for key, value in two.items()}
        for key, value in one.items():
            torch.testing.assert_close(two[key], value, rtol=1e-4, atol=1e-5)


def test_chosen_layout_is_recorded_and_a_resumed_run_repeats_it(tmp_path, monkeypatch):
    monkeypatch.setattr(choose_layout, "_found", lambda config, *rest: with_layout(config))
    assert train(tmp_path, "train.layout=auto") == 0
    recorded = read_recipe(str(tmp_path / "run/config.yaml"))
    assert recorded.g.layout == FOUND and recorded.train.layout == "fixed"
    assert recorded.d.micro_batches == 2 and recorded.g.channels_last is False
    monkeypatch.setattr(choose_layout, "_found", lambda config, *rest: config)  # another day's choice
    assert train(tmp_path, "train.layout=auto", "train.kimg=0.04") == 0
    assert read_recipe(str(tmp_path / "run/config.yaml")).g.layout == FOUND
    assert train(tmp_path, "train.layout=auto", "--fresh") == 0
    assert read_recipe(str(tmp_path / "run/config.yaml")).g.layout is None


def test_stopped_run_with_a_layout_resumes_bit_for_bit(tmp_path):
    assert train(tmp_path / "once", LAYOUT, "train.kimg=0.048") == 0
    for kimg in ("0.024", "0.048"):
        assert train(tmp_path / "twice", LAYOUT, f"train.kimg={kimg}") == 0
    once, twice = (newest(tmp_path / name / "run") for name in ("once", "twice"))
    files = [file.name for file in once.glob("*.safetensors")]
    assert files and all((once / name).read_bytes() == (twice / name).read_bytes() for name in files)


@pytest.mark.parametrize(("strategy", "is_plain"), [("zero3", True), ("ddp", False)])
def test_sharded_weights_are_not_measured(strategy, is_plain):
    config = read_recipe("digits", [*WORDS, f"d.strategy={strategy}"])
    said = []
    found = choose_layout._found(config, World(size=2), said.append, None, with_layout)
    assert (found == config) == is_plain
    assert said == (["layout    plain: sharded weights have no layout"] if is_plain else [])


def test_players_that_train_at_the_same_time_are_measured_in_turns(tmp_path):
    measured = []

    def find(config):
        measured.append(config.scheme.name)
        return with_layout(config)

    found, _ = choose(read_recipe("digits", [*WORDS, "train.layout=auto", "scheme=asynchronous"]), tmp_path, find=find)
    assert measured == ["synchronous"] and found.scheme.name == "asynchronous" and found.g.layout == FOUND


def test_choice_leaves_what_a_user_set(tmp_path):
    words = ("train.layout=auto", "g.channels_last=true", "d.micro_batches=4")
    found, _ = choose(read_recipe("digits", [*WORDS, *words]), tmp_path)
    assert found.g.channels_last is True and found.d.micro_batches == 4 and found.g.layout == FOUND


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.executor=compile"], "the executor compile chooses layouts itself"),
        (["d.recompute=true"], "recomputed activations"),
    ],
)
def test_layout_is_not_searched_where_it_does_not_apply(tmp_path, words, message):
    found, said = choose(read_recipe("digits", [*WORDS, "train.layout=auto", *words]), tmp_path)
    assert found.g.layout is None and found.d.micro_batches == 1
    assert len(said) == 1 and message in said[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["g.layout={taps: [blocks.9]}"], "g.layout: the network has no layer 'blocks.9'"),
        (["g.layout={pad: {blocks.1.conv: [1, 1]}}"], "layout.pad: [1, 1] does not fit a layer of"),
        (["g.layout={taps: [blocks.1.conv]}"], "layout.taps: a layer is no convolution"),
        (["g.layout={merge: [[blocks.1.conv, blocks.2.conv]]}"], "g.layout.merge: blocks.1.conv, blocks.2.conv"),
        (["g.layout={}", "train.executor=compile"], "g.layout is for eager networks"),
        (["d.layout={}", "d.recompute=true"], "d.layout does not support d.recompute"),
        (["d.layout={}", "grid.shape=2x2"], "d.layout is not available for a grid"),
        (["train.layout=auto", "grid.shape=2x2"], "train.layout=auto is not available for a grid"),
        (["g.layout={pad: {blocks.1.conv: 8}}"], "g.layout.pad"),
    ],
)
def test_layout_that_cannot_work_is_refused_in_one_line(tmp_path, capsys, words, message):
    assert train(tmp_path, *words) == 2
    printed = capsys.readouterr().err
    assert message in printed and "Traceback" not in printed


def test_plan_measures_layouts(capsys, monkeypatch):
    """On made-up times: the layers of either side, their shares and waste, and the choice."""
    ticks = count()
    for module in (layout_trial, layout_search):
        monkeypatch.setattr(module, "step_seconds", lambda device, step: 1.0)
    monkeypatch.setattr(
        layout_trial,
        "time_operator",
        lambda operator, place, options, deadline_s: {one: 0.01 + 0.001 * (next(ticks) % 2) for one in options},
    )
    assert main(["plan", "digits", *WORDS, "--measure"]) == 0
    text = capsys.readouterr().out
    assert "layout    1,000 ms a step of 8 rows on cpu" in text and "chosen: the plain networks" in text
    assert main(["plan", "digits", *WORDS, "--measure", "--json"]) == 0
    layout = json.loads(capsys.readouterr().out)["layout"]
    layers = {(one["side"], one["layer"]) for one in layout["layers"]}
    assert {("g", "blocks.1.conv"), ("d", "blocks.0.conv")} <= layers
    assert layout["settings"] == {} and layout["gain"] == 0 and layout["rows"] == 8
    assert all(0 <= one["waste_before"] < 1 and one["share_before"] > 0 for one in layout["layers"])
