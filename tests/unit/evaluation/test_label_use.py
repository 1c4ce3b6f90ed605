"""A generator that ignores its labels is noticed before the first step; one that may use them never is."""

import pytest
import torch
from torch import nn

from paragan import build
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side
from paragan.evaluation.fixed_samples import FixedSamples
from paragan.evaluation.generated_features import sample_generator
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampler import Sampler
from paragan.game.label_use import ignores_labels
from paragan.game.network import CalledNetwork
from paragan.game.player import Player
from paragan.game.prior import Prior
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


class _Grouped(nn.Module):
    """A generator that uses its labels in groups, whose embeddings may be zero for all but one."""

    latent = 2

    def __init__(self, group_of, num_groups, trained=None):
        super().__init__()
        self.group_of = group_of
        self.groups = nn.Embedding(num_groups, 4)
        if trained is not None:
            nn.init.zeros_(self.groups.weight)
            self.groups.weight.data[trained] = 1

    def forward(self, z, y):
        return (z.sum(1, keepdim=True) + self.groups(self.group_of(y))).tanh().view(-1, 1, 2, 2)


@pytest.mark.parametrize("num_classes", [2, 15, 16, 3000])
@pytest.mark.parametrize(
    ("group_of", "num_groups"), [(lambda y: y // 1500, 2), (lambda y: y % 2, 2), (lambda y: y, 3000)]
)
def test_a_generator_that_uses_groups_of_labels_is_not_accused(num_classes, group_of, num_groups):
    prior = Prior(seed=0, latent=2, num_classes=num_classes)
    is_one_group = len({int(group_of(torch.tensor(y))) for y in range(num_classes)}) == 1
    assert ignores_labels(_Grouped(group_of, num_groups), prior) == is_one_group


def test_a_sampler_of_a_generator_whose_first_classes_have_not_trained_has_classes():
    net = _Grouped(lambda y: y, 3000, trained=1501).eval()
    info = GeneratorInfo(shape=(1, 2, 2), class_names=tuple(map(str, range(3000))), step=4, images=64)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    sampler = Sampler(net=net, info=info, seed=0, config=None)
    assert sampler.num_comparable_classes == 3000
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    ignoring = Sampler(net=_Grouped(lambda y: y * 0, 1).eval(), info=info, seed=0, config=None)
    assert ignoring.num_comparable_classes == 0
    with pytest.raises(ConfigError, match="choose a number below 3000"):
        ignoring.labels(1, "c9")
