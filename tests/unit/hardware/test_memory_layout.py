"""Memory format and padded channels: measured by `train.layout: auto`, refused where they cannot work."""

import re
from dataclasses import replace
from math import prod

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.overrides import TorchFunctionMode

from paragan.api.networks import Networks
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.hardware import precision
from paragan.layers.padded_channels import pad_channels
from paragan.runs import layout
from tests.tiny_run import newest

WORDS = (
    *("train.threads=1", "data.size=8", "model={name: dcgan, latent: 4, width: 7}", "train.batch=8", "penalties=[]"),
    *("augment=null", "evaluation.features=null", "every.sample_kimg=0", "train.kimg=0.024"),
    *("g.precision=fp32", "d.precision=fp32"),
)
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
PADDED = ("g.channel_multiple=8", "d.channel_multiple=8")
SGD = ("g.optimizer={name: SGD, lr: 0.1}", "d.optimizer={name: SGD, lr: 0.1}")  # Adam enlarges rounding


def train(folder, *words):
    return main(["train", "digits", *WORDS, *words, "--out", str(folder / "run")])


def laid_out(trial, config, log):
    g = replace(config.g, channels_last=False, channel_multiple=8)
    return replace(config, g=g, d=replace(config.d, channel_multiple=8))


def choose(monkeypatch, out, *words, find=laid_out, world=World()):  # noqa: B008  # a frozen constant
    monkeypatch.setattr(layout, "fastest_layout", find)
    said = []
    return layout.choose_layout(read_recipe("digits", [*WORDS, *words]), out, False, world, said.append), said


class Recorder(TorchFunctionMode):
    """Shapes of the kernels that are computed."""

    def __init__(self):
        super().__init__()
        self.kernels = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.conv2d, torch.conv_transpose2d):
            self.kernels.append(tuple(args[1].shape[:2]))
        return func(*args, **(kwargs or {}))


class OwnLayer(nn.Module):
    """A layer with a kernel that it computes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, 6, 3, 3, dtype=torch.float64))

    def forward(self, x):
        return F.conv2d(x, weight=2 * self.weight, padding="same") if x.dim() == 4 else x


def test_convolutions_compute_with_channels_up_to_the_multiple():
    convs = (
        nn.Conv2d(7, 6, 3),
        nn.ConvTranspose2d(6, 7, 4, bias=False),
        nn.Conv2d(7, 6, 1),
        nn.ConvTranspose2d(6, 7, 2),
    )
    for conv in convs:
        plain = conv.double()
        x = torch.randn(2, plain.in_channels, 5, 5, dtype=torch.float64)
        expected = plain(x)
        assert pad_channels(plain, 8) == 1
        with Recorder() as recorder:
            assert torch.allclose(plain(x), expected, rtol=1e-12, atol=1e-12)
        assert recorder.kernels == [(8, 8)]


def test_layers_of_other_classes_are_padded_too():
    layer = OwnLayer()
    x = torch.randn(2, 6, 5, 5, dtype=torch.float64)
    expected = layer(x)
    assert pad_channels(nn.Sequential(layer), 8) == 1
    assert torch.allclose(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_what_does_not_gain_is_as_written():
    image, fills, grouped = nn.Conv2d(3, 16, 3), nn.Conv2d(8, 16, 3), nn.Conv2d(6, 6, 3, groups=2)
    assert pad_channels(nn.ModuleList([image, fills, grouped, nn.Linear(7, 7)]), 8) == 0
    layer = nn.Conv2d(7, 7, 3)
    pad_channels(layer, 8)
    layer.groups, layer.weight = 7, nn.Parameter(torch.randn(7, 1, 3, 3))  # at its call
    with Recorder() as recorder:
        layer(torch.randn(1, 7, 4, 4))
    assert recorder.kernels == [(7, 1)]


def test_padded_copies_have_the_format_and_memory_order_of_the_computation():
    layer = nn.Conv2d(7, 7, 3).to(memory_format=torch.channels_last)
    pad_channels(layer, 8)
    x = torch.randn(2, 7, 6, 6).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16 and y.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("more", [(), ("g.adapter={name: lora, rank: 2}",)], ids=["whole", "adapter"])
def test_padded_run_has_the_state_of_a_plain_one(tmp_path, more):
    for name, words in (("plain", SGD), ("padded", (*SGD, *PADDED))):
        assert train(tmp_path / name, *words, *more) == 0
    plain, other = (newest(tmp_path / name / "run") for name in ("plain", "padded"))
    files = sorted(file.name for file in plain.glob("*.safetensors"))
    assert files == sorted(file.name for file in other.glob("*.safetensors")) and files
    for file in files:
        one, two = load_file(plain / file), load_file(other / file)
        assert {key: value.shape for key, value in one.items()} == {key: value.shape for key, value in two.items()}
        for key, value in one.items():
            torch.testing.assert_close(two[key], value, rtol=1e-4, atol=1e-5)


def test_chosen_layout_is_recorded_and_a_resumed_run_repeats_it(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "fastest_layout", laid_out)
    assert train(tmp_path, "train.layout=auto") == 0
    recorded = read_recipe(str(tmp_path / "run/config.yaml"))
    assert recorded.train.layout == "plain" and recorded.g.channels_last is False
    assert recorded.g.channel_multiple == recorded.d.channel_multiple == 8
    monkeypatch.setattr(layout, "fastest_layout", lambda trial, config, log: config)  # another day's choice
    assert train(tmp_path, "train.layout=auto", "train.kimg=0.04") == 0
    assert read_recipe(str(tmp_path / "run/config.yaml")).g.channel_multiple == 8
    assert train(tmp_path, "train.layout=auto", "--fresh") == 0
    assert read_recipe(str(tmp_path / "run/config.yaml")).g.channel_multiple == 1


def test_stopped_padded_run_resumes_bit_for_bit(tmp_path):
    assert train(tmp_path / "once", *PADDED, "train.kimg=0.048") == 0
    for kimg in ("0.024", "0.048"):
        assert train(tmp_path / "twice", *PADDED, f"train.kimg={kimg}") == 0
    once, twice = (newest(tmp_path / name / "run") for name in ("once", "twice"))
    files = [file.name for file in once.glob("*.safetensors")]
    assert files and all((once / name).read_bytes() == (twice / name).read_bytes() for name in files)


@pytest.mark.parametrize("words", [(), ("scheme=asynchronous",)], ids=["synchronous", "asynchronous"])
def test_auto_measures_both_players_in_turns_and_trains(tmp_path, monkeypatch, capsys, words):
    monkeypatch.setattr(layout, "_GAMES", 1)
    monkeypatch.setattr(layout, "_PAIRS", 1)
    monkeypatch.setattr(precision, "channel_multiple", lambda device: 8)
    assert train(tmp_path, "train.layout=auto", *words) == 0
    printed = capsys.readouterr().out
    for key in ("channels_last=false", "channel_multiple=8"):
        for side in "gd":
            assert f"layout    {side}.{key}: " in printed
    assert read_recipe(str(tmp_path / "run/config.yaml")).train.layout == "plain"


@pytest.mark.parametrize(
    ("gains", "expected"), [([0.1, None, 0.2, None], (False, 1)), ([None, 0.1, None, 0.1], (None, 8))]
)
def test_candidates_that_are_faster_stay_and_are_tried_together(monkeypatch, gains, expected):
    config = read_recipe("digits", WORDS)
    trial = layout.TrialRun(config, World(), None)
    built, said = [], []
    monkeypatch.setattr(precision, "channel_multiple", lambda device: 8)
    monkeypatch.setattr(layout, "_warm_step", lambda trial, config: built.append(config))
    answers = iter(gains)
    monkeypatch.setattr(layout, "step_gain", lambda make_steps: (make_steps(), next(answers))[1])
    found = layout.fastest_layout(trial, config, said.append)
    for player in (found.g, found.d):
        assert (player.channels_last, player.channel_multiple) == expected
    pairs = zip(built[::2], built[1::2], strict=True)
    bests = [config]
    for gain, (best, other) in zip(gains, pairs, strict=True):
        assert best == bests[-1] != other
        bests.append(best if gain is None else other)
    assert bests[-1] == found
    assert [line.split(": ")[1].split(",")[0] for line in said] == [
        "not faster" if g is None else "chosen" for g in gains
    ]


def test_candidate_that_does_not_fit_into_memory_is_left_out(monkeypatch):
    def fail(make_steps):
        raise torch.OutOfMemoryError("out of memory")

    config = read_recipe("digits", WORDS)
    monkeypatch.setattr(layout, "step_gain", fail)
    said = []
    assert layout.fastest_layout(layout.TrialRun(config, World(), None), config, said.append) == config
    assert said and all("not chosen" in line for line in said)
    monkeypatch.setattr(layout, "_BUDGET_S", -1.0)
    said.clear()
    assert layout.fastest_layout(layout.TrialRun(config, World(), None), config, said.append) == config
    assert said and all("not tried" in line for line in said)


class NoisyNet(nn.Sequential):
    """With dropout, whose draws advance a generator."""

    def __init__(self, inputs, *outputs):
        super().__init__(nn.Flatten(), nn.Linear(inputs, prod(outputs)), nn.Dropout(0.5), nn.Unflatten(1, outputs))

    def forward(self, x, y=None):
        return super().forward(x)


class NoisyCritic(NoisyNet):
    def forward(self, x, y=None):
        return None, super().forward(x)


def test_measured_steps_change_neither_weights_nor_random_state():
    g, d = NoisyNet(4, 1, 8, 8), NoisyCritic(64, 1)
    torch.manual_seed(1)
    state, weights = torch.get_rng_state(), [weight.clone() for weight in (*g.parameters(), *d.parameters())]
    config = read_recipe("digits", WORDS)
    trial = layout.TrialRun(config, World(), Networks(g=g, d=d, latent=4, num_classes=0))
    layout.fastest_layout(trial, config, print)
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, weights, (*g.parameters(), *d.parameters())))


def test_trial_of_a_rank_has_its_share_of_the_batch():
    assert layout.TrialRun(read_recipe("digits", WORDS), World(rank=0, size=2), None).rows == 4


class Steps:
    """Steps that take these seconds in turn."""

    def __init__(self, *seconds):
        self.seconds, self.number = seconds, 0

    def __call__(self):
        self.number += 1
        return self.seconds[(self.number - 1) % len(self.seconds)]


def gain(plain, *others):
    """The gain over games whose other steps take these seconds."""
    made = iter(others)
    return layout.step_gain(lambda: (plain, Steps(*next(made))))


def test_step_gain_of_faster_steps_is_the_median_of_games():
    assert gain(Steps(1.0), [0.9], [0.6], [0.8]) == pytest.approx(0.2)


def test_step_gain_allows_one_pair_in_favour_of_the_plain_step():
    assert gain(Steps(1.0), [0.9], [0.9, 1.1, 0.9, 0.9], [0.9]) == pytest.approx(0.1)
    plain = Steps(1.0)
    assert gain(plain, [0.9, 1.1, 0.9, 0.9], [0.5, 1.1, 0.5, 0.5], [0.5]) is None
    assert plain.number == layout._PAIRS + 2  # it ends at once


def test_step_gain_needs_more_than_noise_in_every_game():
    assert gain(Steps(1.0), [0.5], [0.99], [0.5]) is None


def test_choice_leaves_what_a_user_set(tmp_path, monkeypatch):
    words = ("train.layout=auto", "g.channels_last=true", "d.channel_multiple=4")
    found, _ = choose(monkeypatch, tmp_path, *words)
    assert found.g.channels_last is True and found.d.channel_multiple == 4 and found.g.channel_multiple == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.executor=compile"], "the executor compile chooses layouts itself"),
        (["d.recompute=true"], "activations that are recomputed"),
    ],
)
def test_layout_is_not_searched_where_it_does_not_apply(tmp_path, monkeypatch, words, message):
    found, said = choose(monkeypatch, tmp_path, "train.layout=auto", *words)
    assert found.g.channel_multiple == found.d.channel_multiple == 1 and found.train.layout == "plain"
    assert len(said) == 1 and message in said[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["g.channel_multiple=8", "train.executor=compile"], "g.channel_multiple=8 .* train.executor=compile"),
        (["d.channel_multiple=8", "d.recompute=true"], "d.channel_multiple=8 .* d.recompute"),
        (["g.layout={pad: {blocks.1.conv: [8, 8]}}"], "g.layout: this setting was removed"),
    ],
)
def test_layout_that_cannot_work_is_refused_in_one_line(tmp_path, capsys, words, message):
    assert train(tmp_path, *words) == 2
    printed = capsys.readouterr().err
    assert re.search(message, printed) and "Traceback" not in printed
