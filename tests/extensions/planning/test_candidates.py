"""Candidates of a plan: only settings that `train` accepts."""

import pytest
import torch

from paragan import build
from paragan.config import read_recipe
from paragan.extensions.planning.candidates import PlanSource, candidates, with_settings
from paragan.extensions.planning.profile_run import updates_fingerprint
from paragan.game.needs import game_needs
from tests.simulated_workers import profile

WORDS = ["data.size=8", "model.width=4", "model.latent=8", "train.batch=16"]
GAMES = {
    "plain": [],
    "a penalty that mixes samples": ["penalties=[{name: lecam}]"],
    "a penalty of G that mixes samples": ["penalties=[{name: feature_matching}]"],
    "a balancer": ["penalties=[{name: feature_matching}]", "balancer={name: gradient_normalization}"],
    "a loss that compares": ["loss=relativistic_average"],
}


@pytest.mark.parametrize("game", GAMES)
def test_no_candidate_lacks_what_the_game_needs(game):
    config = read_recipe("digits", [*WORDS, *GAMES[game]])
    source = PlanSource(config, build.open_data(config), profile(fingerprint=updates_fingerprint(config)))
    built = build.gan(config, source.data, torch.device("cpu"))
    first, *others = candidates(source, built, 4, None)
    for candidate in others:
        settings = with_settings(config, candidate.settings)
        build.scheme(settings).refuse(built, source.data.train.tensors)
        for side, options in settings.player_options.items():
            holder = build.strategy_on_ranks(options, torch.device("cpu")).holder
            lacking = {need.capability for need in game_needs(built)} - holder.capabilities
            assert not lacking, f"{candidate.name}: {side}"
    averaged = [candidate for candidate in others if "g.strategy" in candidate.settings]
    assert bool(averaged) == (game == "plain") and first.settings == {}
