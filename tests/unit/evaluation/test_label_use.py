"""A generator that ignores its labels is noticed before the first step; one that may use them never is."""

import torch

from paragan import build
from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.generated_features import sample_generator
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from tests import unlabelled_networks as networks

CPU = torch.device("cpu")
WORDS = ["data.size=8", "train.batch=8", "loss=hinge", "penalties=[]"]


def game_of(model, *words):
    config = read_recipe("digits", [*WORDS, *words])
    return build.gan(config, build.open_data(config), CPU, model=model)


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
    player = Player(side=Side.G, net=game.g.net)
    sheet = FixedSamples()(player, game.prior, names)
    x = sheet.images
    assert sheet.rows == ()
    assert len(x.flatten(1).unique(dim=0)) == len(x)  # no row repeats another
    _, asked = sample_generator(CalledNetwork(module=game.g.net), game.prior, 20)(0, 20)
    assert asked is None
    conditional = game_of(networks.CONDITIONAL)
    assert FixedSamples()(Player(side=Side.G, net=conditional.g.net), conditional.prior, names).rows == names
    assert sample_generator(CalledNetwork(module=conditional.g.net), conditional.prior, 20)(0, 20)[1] is not None
