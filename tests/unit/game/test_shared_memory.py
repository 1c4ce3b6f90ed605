"""Weights and buffers of two networks that are one tensor, or two of the same memory."""

import sys
import warnings

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.cli.main import main
from paragan.cli.new import new
from paragan.core.errors import ConfigError
from paragan.game.shared_memory import check_separate
from tests.unit.api.test_networks_of_the_field import D, G, trainer
from tests.unit.api.test_networks_that_cannot_train import with_forward


def module():
    norm = nn.BatchNorm1d(6, affine=False)
    return nn.Sequential(nn.Linear(4, 6), norm), nn.Sequential(norm, nn.Linear(6, 1))


def buffer():
    g, d = nn.BatchNorm1d(6), nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
    d[1].running_mean = g.running_mean
    return g, d


def view():
    g, d = nn.Linear(4, 6), nn.Linear(6, 1)
    g.register_buffer("all", torch.zeros(9))
    d.register_buffer("mean", g.all[4:6])
    return g, d


def weight():
    g, d = nn.Linear(4, 6), nn.Linear(4, 6)
    d.weight = g.weight
    return g, d


def data_of_a_weight():
    g, d = nn.Linear(4, 6), nn.Linear(2, 6)
    d.weight = nn.Parameter(g.weight.data[:, :2])
    return g, d


def weight_as_buffer():
    g, d = nn.Linear(4, 6), nn.Linear(6, 1)
    d.register_buffer("copy", g.weight.data[2])
    return g, d


def separate():
    """Tensors that follow one another in one memory, and several names for one tensor in one network."""
    memory = torch.zeros(8)
    g, d = nn.Linear(4, 6), nn.Linear(6, 1)
    for number, net in enumerate((g, d)):
        net.register_buffer("part", memory[4 * number : 4 * number + 4])
        net.register_buffer("again", net.part)
    return g, d


def constant():
    g, d = nn.Linear(4, 6), nn.Linear(6, 1)
    for net in (g, d):
        net.register_buffer("constant", torch.ones(3), persistent=False)
    d.constant = g.constant
    return g, d


@pytest.mark.parametrize("nets", [module, buffer, view])
def test_shared_buffers_are_noticed_once_for_two_networks(nets):
    g, d = nets()
    with pytest.warns(UserWarning, match=r"^owner: g and d share buffers \(\w") as caught:
        check_separate({"g": g, "d": d, "other": nn.Linear(2, 2)}, "owner: ")
    assert len(caught) == 1


@pytest.mark.parametrize("nets", [weight, data_of_a_weight, weight_as_buffer])
def test_shared_weights_are_refused(nets):
    g, d = nets()
    with pytest.raises(ConfigError, match=r"^other and d share weights; give each separate weights"):
        check_separate({"g": nn.Linear(2, 2), "other": g, "d": d})


@pytest.mark.parametrize("nets", [separate, constant])
def test_separate_memory_and_constants_are_fine(nets):
    g, d = nets()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_separate({"g": g, "d": d, "on no device": nn.Linear(2, 2, device="meta")})


class WithNorm(G):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, latent):
        return self.norm(super().forward(latent))


def test_a_run_says_that_its_networks_share_a_buffer(tmp_path):
    norm = nn.BatchNorm1d(6, affine=False)
    d = with_forward(D(), lambda self, x: self.before(self.norm(x)))
    d.norm = norm
    with pytest.warns(UserWarning, match=r"^generator and discriminator share buffers \(norm\.num_b"):
        trainer(WithNorm(norm), d, tmp_path / "a", train__kimg=0.004).run()
    d.last.bias = nn.Parameter(norm.running_mean[:1])
    with pytest.raises(ConfigError, match="generator and discriminator share weights"):
        trainer(WithNorm(norm), d, tmp_path / "b").run()


class Image(nn.Module):
    latent = 4

    def __init__(self, norm):
        super().__init__()
        self.layer = nn.Linear(4, 3 * 16 * 16)
        self.norm = norm

    def forward(self, z):
        return self.norm(self.layer(z).view(-1, 3, 16, 16))


def test_networks_of_an_estimator_are_looked_at_too(tmp_path):
    norm = nn.BatchNorm2d(3, affine=False)
    d = nn.Sequential(norm, nn.Flatten(), nn.Linear(3 * 16 * 16, 1))
    with pytest.warns(UserWarning, match=r"^Estimator: g and d share buffers \(norm.num_b.*, norm.running_mean"):
        pg.Estimator(Image(norm), d).networks()


@pytest.mark.filterwarnings("default:model of g and model of d share buffers:UserWarning")
@pytest.mark.parametrize(("affine", "code"), [(True, 2), (False, 0)])
def test_networks_of_a_recipe_that_share_a_layer_are_named(tmp_path, monkeypatch, capsys, affine, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = f"shared_{code}"
    new(name)
    nets = tmp_path / name / "nets.py"
    shared = f"SHARED = nn.BatchNorm2d(1, affine={affine})"
    text = nets.read_text().replace("\n\n@dataclass", f"\n\n{shared}\n\n\n@dataclass", 1)
    text = text.replace("full, nn.Tanh()", "full, SHARED, nn.Tanh()", 1)
    before, discriminator = text.split("class Discriminator")
    after = discriminator.replace("nn.Sequential(", "nn.Sequential(SHARED, ", 1)
    nets.write_text(f"{before}class Discriminator{after}")
    capsys.readouterr()
    words = ["train.kimg=0.01", "evaluation.features=null", "--out", "run"]
    assert main(["train", f"{name}/recipe.yaml", *words]) == code
    assert f"model of g and model of d share {'weights;' if affine else 'buffers (layers.'}" in capsys.readouterr().err
