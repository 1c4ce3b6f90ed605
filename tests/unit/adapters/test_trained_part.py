"""Adapters and patterns: what trains, what a checkpoint holds, resume, merged generators, refusals."""

import copy
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import paragan as pg
from paragan.adapters import lora
from paragan.checkpoint.writer import CheckpointWriter
from paragan.config import to_tree
from paragan.core.errors import CheckpointError
from paragan.core.types import Side
from paragan.export.bundle import Bundle
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.state import state_of
from paragan.game.trained_part import add_adapters, fixed_names, select_trained
from paragan.layers.adapter import base_names, merge_adapters
from paragan.layers.init import initialise
from paragan.runs.open_run import open_run

SETTINGS = {
    "data.size": 8,
    "model": {"name": "dcgan", "width": 8, "latent": 8, "d_norm": "none"},
    "train.batch": 16,
    "train.kimg": 0.16,
    "every.save_kimg": 0.08,
    "g.ema": {"half_life_kimg": 0.05},
    "evaluation.features": None,
    "scheme": "synchronous",
}
LORA = {**SETTINGS, "g.adapter": {"name": "lora", "rank": 2}, "d.train": ["*.bias"]}


def train(out, settings, **more):
    return pg.train("digits", {**settings, **more}, out=out)


def saved(folder, side="g"):
    return load_file(sorted(folder.glob("checkpoints/*/"))[-1] / f"{side}.safetensors")


def network(dtype=torch.float64):
    torch.manual_seed(0)
    layers = (nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    return nn.Sequential(*layers).to(dtype)


def with_lora(net, patterns=(), **options):
    add_adapters(net, partial(lora.Adapter, options=lora.Options(**options)), patterns)
    select_trained(net)
    return net


class Large(nn.Module):
    """1.0 M weights in linear layers and convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(64, 128 * 16)
        self.convs = nn.ModuleList([nn.Conv2d(128, 128, 3, padding=1) for _ in range(5)])
        self.last = nn.Linear(128 * 16, 64)

    def forward(self, x):
        h = self.stem(x).unflatten(1, (128, 4, 4))
        for conv in self.convs:
            h = h + conv(h).tanh()
        return self.last(h.flatten(1))


def large_player(has_adapters):
    torch.manual_seed(0)
    net = Large()
    if has_adapters:
        with_lora(net, rank=4)
    ema = Ema(copy.deepcopy(net), EmaOptions(half_life_kimg=0.01))
    return Player(
        side=Side.G, net=net, policy=Policy(lr=1e-2), ema=ema, base=fixed_names(net) if has_adapters else frozenset()
    )


def test_checkpoint_of_rank_four_adapters_on_a_million_weights_is_small_and_its_base_unchanged(tmp_path):
    sizes = {}
    for has_adapters in (False, True):
        player = large_player(has_adapters)
        before = {name: value.clone() for name, value in player.net.named_parameters()}
        draw = torch.Generator().manual_seed(0)
        trained = [weight.requires_grad for weight in player.net.parameters()]
        for _ in range(3):
            shapes = [weight.shape for weight in player.net.parameters()]
            gradients = [torch.randn(s, generator=draw) if t else None for s, t in zip(shapes, trained, strict=True)]
            player.apply_external_gradients(gradients, 8)
        pieces, values = state_of(player)
        path = CheckpointWriter(folder=tmp_path / str(has_adapters)).save(1, {"g": pieces}, {"players": {"g": values}})
        sizes[has_adapters] = sum(file.stat().st_size for file in path.iterdir())
    assert sum(weight.numel() for weight in Large().parameters()) > 1_000_000
    assert sizes[True] < 0.08 * sizes[False]
    after = dict(player.net.named_parameters())
    assert [name for name in after if not torch.equal(after[name], before[name])] == [
        name for name in after if name not in player.base
    ]
    assert all(torch.equal(dict(player.ema.net.named_parameters())[name], before[name]) for name in player.base)


def test_merged_network_is_the_adapted_one():
    net = large_player(True).net
    for name, weight in net.named_parameters():
        if name.endswith("up"):
            weight.data.normal_(generator=torch.Generator().manual_seed(1))
    x = torch.randn(4, 64)
    expected = net(x)
    merged = merge_adapters(copy.deepcopy(net))
    plain = Large()
    plain.load_state_dict(merged.state_dict())
    assert (plain(x) - expected).abs().max() <= 1e-6


def test_lora_is_a_plain_loop_of_its_formula():
    """Against y = x W^T + s (x A^T) B^T with torch's AdamW, in float64."""
    ours = with_lora(network(), rank=2, alpha=3.0)
    player = Player(side=Side.D, net=ours, policy=Policy(kind=torch.optim.AdamW, lr=0.01), base=fixed_names(ours))
    plain = network().requires_grad_(False)
    factors = [
        [nn.Parameter(weight.detach().clone()) for weight in ours[number].parametrizations.weight[0].parameters()]
        for number in (0, 2, 4)
    ]
    optimizer = torch.optim.AdamW([factor for pair in factors for factor in pair], 0.01)
    for step in range(4):
        x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        h = x
        for number, (down, up) in zip((0, 2, 4), factors, strict=True):
            h = plain[number](h) + 1.5 * (h @ down.T) @ up.T
            h = h.tanh() if number < 4 else h
        assert (ours(x) - h).abs().max() <= 1e-12
        optimizer.zero_grad()
        h.square().sum().backward()
        optimizer.step()
        ours(x).square().sum().backward()
        player.apply_external_gradients([weight.grad for weight in ours.parameters()], 6)
    assert (ours[0].weight - plain[0].weight).abs().max() > 1e-3


def test_lora_starts_as_a_linear_layer_times_nothing():
    adapter = lora.Adapter(torch.zeros(64, 256), lora.Options(rank=8))
    draw = torch.Generator().manual_seed(0)
    for role, weight in adapter.named_parameters():
        adapter.fill(role, weight.data, draw)
    assert not adapter.up.any() and adapter.down.abs().max() <= 1 / 16
    assert float(adapter.down.detach().std()) == pytest.approx(1 / 16 / 3**0.5, rel=0.05)


def test_initial_draw_with_adapters_is_that_without():
    plain = network()
    adapted = with_lora(network())
    for net in (plain, adapted):
        net.weight_init = "orthogonal"
        initialise(net, 3, "g")
    assert all(torch.equal(plain[n].weight, adapted[n].weight) for n in (0, 2, 4))
    assert base_names(adapted)["2.weight"] == "2.parametrizations.weight.original"


@pytest.mark.parametrize(
    ("train", "freeze", "expected"),
    [
        (("*.bias",), (), {"0.bias", "2.bias", "4.bias"}),
        (("4.*",), ("*.bias",), {"4.weight"}),
        ((), ("0.*", "2.*"), {"4.weight", "4.bias"}),
    ],
)
def test_patterns_select_what_trains(train, freeze, expected):
    net = network()
    fixed = select_trained(net, train, freeze)
    assert {name for name, weight in net.named_parameters() if weight.requires_grad} == expected
    assert fixed == {name for name, _ in net.named_parameters()} - expected


def test_adapters_and_what_train_matches_are_all_that_trains():
    net = with_lora(network(), ["2.weight"])
    select_trained(net, ["*.bias"], ["0.*"])
    assert {name for name, weight in net.named_parameters() if weight.requires_grad} == {
        *("2.bias", "4.bias", "2.parametrizations.weight.0.down", "2.parametrizations.weight.0.up")
    }


def test_average_shares_the_base_and_follows_the_rest():
    player = large_player(True)
    average = dict(player.ema.net.named_parameters())
    weights = dict(player.net.named_parameters())
    shared = {name for name in weights if average[name].data_ptr() == weights[name].data_ptr()}
    assert shared == player.base
    before = average["stem.parametrizations.weight.0.up"].clone()
    player.apply_external_gradients([w.new_ones(w.shape) if w.requires_grad else None for w in weights.values()], 8)
    assert not torch.equal(average["stem.parametrizations.weight.0.up"], before)


def test_run_with_adapters_resumes_bit_for_bit_and_saves_what_trains(tmp_path):
    train(tmp_path / "whole", LORA)
    train(tmp_path / "stopped", LORA, **{"train.kimg": 0.08})
    train(tmp_path / "stopped", LORA)
    for side in ("g", "d"):
        whole = saved(tmp_path / "whole", side)
        stopped = saved(tmp_path / "stopped", side)
        assert whole.keys() == stopped.keys()
        assert [name for name in whole if not torch.equal(whole[name], stopped[name])] == []
        assert not any(name.endswith(("original", ".weight")) for name in whole)


def test_run_on_a_file_trains_scores_and_exports_a_plain_generator(tmp_path, capsys):
    train(tmp_path / "base", SETTINGS)
    base = pg.load(tmp_path / "base")
    save_file(base.net.state_dict(), tmp_path / "base.safetensors")
    settings = {**LORA, "seed": 5, "g.init": str(tmp_path / "base.safetensors")}
    train(tmp_path / "run", settings, **{"train.kimg": 0.08})
    assert "G         5,338 weights (889 train), " in capsys.readouterr().out
    run = train(tmp_path / "run", settings)
    sampler = pg.load(run.folder)
    assert sampler.net.state_dict().keys() == base.net.state_dict().keys()
    tensors = saved(tmp_path / "run")
    for name, value in sampler.net.state_dict().items():
        layer = name.removesuffix(".weight")
        expected = base.net.state_dict()[name]
        if f"ema/{layer}.parametrizations.weight.0.up" in tensors:
            up, down = (tensors[f"ema/{layer}.parametrizations.weight.0.{role}"] for role in ("up", "down"))
            expected = expected + (up @ down).view_as(expected)
            assert (up @ down).abs().max() > 0
        if ".norm." not in name:  # running statistics change
            assert (value - expected).abs().max() <= 1e-6
    opened = open_run(run.folder).players["g"]
    assert torch.equal(
        merge_adapters(copy.deepcopy(opened.ema.net)).blocks[1].conv.weight, sampler.net.blocks[1].conv.weight
    )
    Bundle(sampler=sampler, tree=to_tree(sampler.config), score={}).write_file(
        tmp_path / "exported.safetensors", "safetensors"
    )
    exported = pg.load(tmp_path / "exported.safetensors")
    z = sampler.latents(4)
    assert torch.equal(exported.net(z, sampler.labels(4)), sampler.net(z, sampler.labels(4)))


def test_resume_on_another_base_is_refused_in_one_line(tmp_path):
    train(tmp_path / "base", SETTINGS)
    weights = pg.load(tmp_path / "base").net.state_dict()
    path = tmp_path / "base.safetensors"
    save_file(weights, path)
    settings = {**LORA, "g.init": str(path)}
    train(tmp_path / "run", settings)
    save_file({name: value + (value.dim() > 1) * 1e-3 for name, value in weights.items()}, path)
    for again in (lambda: train(tmp_path / "run", settings, **{"train.kimg": 0.24}), lambda: pg.load(tmp_path / "run")):
        with pytest.raises(CheckpointError, match=r"g was trained on other base weights \(sha256 ") as refused:
            again()
        assert "\n" not in str(refused.value) and "g.init" in str(refused.value)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"base\.safetensors") as refused:
        train(tmp_path / "run", settings, **{"train.kimg": 0.24})
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_weights_from_a_run_that_holds_a_part_are_refused(tmp_path):
    train(tmp_path / "part", LORA)
    with pytest.raises(CheckpointError, match="holds only the trained part of g; export the run"):
        train(tmp_path / "run", SETTINGS, **{"g.init": str(tmp_path / "part")})
