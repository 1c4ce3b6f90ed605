"""A generator that ignores its labels is noticed before the first step; one that may use them never is."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from paragan import build
from paragan.cli.main import main
from paragan.config import load
from paragan.core.types import Side
from paragan.engine.evaluate import images_of
from paragan.engine.pictures import Pictures
from paragan.game.label_use import IGNORED
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from tests import unlabelled_networks as networks

CPU = torch.device("cpu")
WORDS = ["data.size=8", "train.batch=8", "loss=hinge", "penalties=[]"]


def game_of(model, *words):
    config = load("digits", [*WORDS, *words])
    return build.gan(config, build.data(config), CPU, model=model)


def test_a_generator_that_ignores_its_labels_is_noticed():
    assert not game_of(networks.IGNORING).prior.uses_labels


def test_a_generator_whose_embeddings_start_at_zero_is_not_accused():
    game = game_of(networks.CONDITIONAL)
    one, other = (game.g.net(torch.ones(2, 4), torch.full((2,), label)) for label in (0, 1))
    assert torch.equal(one, other)
    assert game.prior.uses_labels


def test_a_game_without_classes_has_no_labels_to_ignore():
    assert game_of(networks.UNLABELLED).prior.uses_labels


def test_sheets_and_scores_of_an_ignoring_generator_name_no_class():
    game = game_of(networks.IGNORING)
    names = tuple("0123456789")
    player = Player(Side.G, game.g.net)
    x, _, rows = Pictures()(player, game.prior, names)
    assert rows == ()
    assert len(x.flatten(1).unique(dim=0)) == len(x)  # no row repeats another
    _, asked = images_of(CalledNetwork(game.g.net), game.prior, 20)(0, 20)
    assert asked is None
    conditional = game_of(networks.CONDITIONAL)
    assert Pictures()(Player(Side.G, conditional.g.net), conditional.prior, names)[2] == names
    assert images_of(CalledNetwork(conditional.g.net), conditional.prior, 20)(0, 20)[1] is not None


def test_a_run_warns_once_records_it_and_names_no_class(tmp_path, monkeypatch, capsys):
    source = Path(networks.__file__).read_text(encoding="utf-8")
    (tmp_path / "ignoring").mkdir()
    (tmp_path / "ignoring" / "nets.py").write_text(
        f"{source}\nGenerator, Discriminator = IgnoringGenerator, ConditionalDiscriminator\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "train.kimg=0.032", "every.sample_kimg=0.032", "score.extractor=none"]
    assert main(["train", "digits", *words, "model.name=ignoring.nets", "--out", "run"]) == 0
    said = "".join(capsys.readouterr()).splitlines()
    assert [line for line in said if line.startswith("warning:")] == [IGNORED]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["data"]["labels"] == "ignored by the generator"
    assert all(line["rows"] == [] for line in lines if line["kind"] == "samples")
