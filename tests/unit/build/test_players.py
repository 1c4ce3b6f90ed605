"""Extra players of a config: networks of a model's file, terms of a file, weights to start from, one-line errors."""

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from paragan import build
from paragan.build.initial_weights import load_initial_weights
from paragan.checkpoint.reader import read_checkpoint
from paragan.cli.main import main
from paragan.config import compare, dump, parse_recipe, read_recipe
from paragan.config.reference import of_run
from paragan.core.dist import World
from paragan.core.errors import CheckpointError, ConfigError
from paragan.game.options import PlayerOptions
from paragan.runs.existing_run import former_run
from paragan.runs.folder import RunFolder
from paragan.schemes import asynchronous
from tests.tiny_run import TINY, newest

MODEL = """
from dataclasses import dataclass
from torch import nn

@dataclass(frozen=True)
class Options:
    width: int = 8

class Generator(nn.Sequential):
    latent = 4
    num_classes = 0
    def __init__(self, options, shape, num_classes):
        super().__init__(nn.Linear(4, options.width), nn.Linear(options.width, 64), nn.Unflatten(1, (1, 8, 8)))
    def forward(self, z, y=None):
        return super().forward(z)

class Discriminator(nn.Sequential):
    def __init__(self, options, shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 1), nn.Flatten(0))
    def forward(self, x, y=None):
        return super().forward(x)

class Denoiser(nn.Conv2d):
    def __init__(self, options, shape, num_classes):
        super().__init__(1, 1, 3, padding=1)

players = {"denoiser": Denoiser}
"""
TERM = """
from dataclasses import dataclass
import paragan as pg

@dataclass(frozen=True)
class Options:
    pass

class Penalty(pg.Penalty):
    name, side = "denoise", pg.Side("denoiser")
    def __init__(self, options):
        pass
    def __call__(self, context):
        x = context.outputs.images
        return (context.network(x + context.normal("denoise", x)) - x).square().mean((1, 2, 3))
"""

ORDERS = [{name: PlayerOptions() for name in names} for names in (("denoiser", "doubt"), ("doubt", "denoiser"))]


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Words of a run with the player `denoiser`, whose model and term are files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)
    (tmp_path / "term.py").write_text(TERM)
    player = "players.denoiser.optimizer.lr=1e-3"
    return [*TINY, "scheme=synchronous", "model=nets.py", "penalties=term.py", player]


def run(folder, words):
    config = read_recipe("digits", words)
    trainer = build.trainer(config, folder, print, lambda: False)
    list(trainer.run())
    return trainer


def test_player_of_a_models_file_trains_and_is_in_the_checkpoint(tmp_path, words):
    trainer = run(tmp_path / "run", words)
    assert trainer.players["denoiser"].version == trainer.clock.step > 0
    group = read_checkpoint(newest(tmp_path / "run")).groups["denoiser"]
    assert torch.equal(group["net/weight"], trainer.players["denoiser"].net.weight)
    assert trainer.players["denoiser"].policy.lr == 1e-3


def test_resume_may_change_placement_and_rates_of_further_players(tmp_path, words, capsys):
    def train(*more):
        return main(["train", "digits", *words, "every.log_steps=1", *more, "--out", str(tmp_path / "run")])

    assert train() == 0
    rate = ("players.denoiser.strategy=ddp", "players.denoiser.optimizer.lr=2e-3", "train.kimg=0.128")
    assert train(*rate) == 2
    error = capsys.readouterr().err
    assert "(players.denoiser.optimizer.lr was 0.001, now 0.002); " in error and "add --change" in error
    assert train(*rate, "--change") == 0
    assert "players.denoiser.optimizer.lr changed from 0.001 to 0.002 at step 4" in capsys.readouterr().out
    record = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rates = [line["denoiser/lr"] for line in map(json.loads, record) if line["kind"] == "step"]
    assert rates == [1e-3] * 4 + [2e-3] * 4


def test_order_of_players_is_compared_and_refused_at_a_resume(tmp_path, words):
    tree = dump(read_recipe("digits", words))
    before, after = (replace(parse_recipe(tree, "x"), players=players) for players in ORDERS)
    assert compare(before, after) == {"players": (["denoiser", "doubt"], ["doubt", "denoiser"])}
    assert compare(before, before) == {}
    (tmp_path / "config.yaml").write_text(dump(before))
    with pytest.raises(CheckpointError, match=r"\(players was \['denoiser', 'doubt'\], now \['doubt', 'denoiser'\]\)"):
        former_run(RunFolder(tmp_path), after, print)


def test_player_starts_from_a_file_of_weights(tmp_path, words):
    weights = {"weight": torch.full((1, 1, 3, 3), 0.5), "bias": torch.ones(1)}
    save_file(weights, tmp_path / "denoiser.safetensors")
    assert (tmp_path / "denoiser.safetensors").read_bytes()[:1] == b"\x80"  # as of a pickle
    config = read_recipe("digits", [*words, "players.denoiser.init=denoiser.safetensors"])
    trainer = build.trainer(config, tmp_path, print, lambda: False)
    recorded, lines = load_initial_weights(config, trainer, None, print)
    assert torch.equal(trainer.players["denoiser"].net.weight, weights["weight"])
    assert lines == ["players.denoiser.init from denoiser.safetensors: denoiser all 2 tensors"]
    assert len(recorded.players["denoiser"].init.sha256) == 64


def test_players_survive_writing_and_reading_a_config(words):
    config = read_recipe("digits", [*words, "players.denoiser.strategy=zero3", "players.denoiser.updates_per_step=3"])
    assert parse_recipe(dump(config), "again") == config
    assert config.batches_per_step == 3
    assert len(config.max_steps) == -(-round(config.train.kimg * 1000) // (3 * config.train.batch))
    explained = {one.key: one.value for one in of_run("digits", words)}
    assert explained["players.denoiser.optimizer.lr"] == 1e-3


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["players.denoiser.lr=1"], "command line: players.denoiser.lr: unknown key"),
        (["players.D.optimizer.lr=1"], "players: the name 'D' is invalid"),
        (["penalties=[]"], "players.denoiser has no loss"),
        (["penalties=[term.py,r1]", "players={}"], "penalty denoise is a term of denoiser, which is not a player"),
        (
            ["players.denoiser.train=[weight]", "players.denoiser.precision=pure"],
            "players.denoiser.precision=pure .* players.denoiser.train",
        ),
        (["scheme=asynchronous"], "the setting players .* scheme asynchronous"),
        (["model=mlp"], "players.denoiser: model mlp has none"),
    ],
)
def test_player_that_does_not_fit_is_refused_in_one_line(tmp_path, words, capsys, more, problem):
    assert main(["train", "digits", *words, *more, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip()
    assert re.search(problem, error) and "Traceback" not in error
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_ranks_of_an_invalid_name_are_refused():
    scheme = asynchronous.Scheme(asynchronous.Options(ranks={"g": 1, "D": 1}))
    with pytest.raises(ConfigError, match=r"^scheme.ranks: 'D' is not the name of a player; use g, d and the names"):
        scheme.roles(World(rank=0, size=2), 5.0)
