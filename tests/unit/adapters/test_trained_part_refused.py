"""Parts of networks that cannot train are refused in one line, before the first step."""

import re

import pytest
import torch
from torch import nn

from paragan.core.errors import ConfigError
from tests.unit.adapters.test_trained_part import SETTINGS, network, train, with_lora


def refused(tmp_path, settings):
    with pytest.raises(ConfigError) as error:
        train(tmp_path / "run", {**SETTINGS, **settings})
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"g.train": ["nothing.*"]}, r"g.train: no parameter of the network matches 'nothing\.\*'"),
        ({"d.freeze": ["*"]}, "d: Discriminator has no weight to train"),
        ({"g.adapter": {"name": "lora", "match": ["*.bias"]}}, "is a vector; leave it out"),
        ({"g.adapter": "lora", "g.precision": "pure"}, "g.precision=pure .* g.adapter"),
        ({"d.adapter": "lora", "model": {"name": "sngan", "width": 8}}, "has spectral norm or another parametrization"),
        ({"g.adapter": "lora", "g.strategy": "tensor"}, "g.adapter .* strategy tensor"),
        ({"d.train": ["*.bias"], "d.strategy": "pipeline"}, "d.train .* strategy pipeline"),
    ],
)
def test_part_that_cannot_train_is_refused_before_the_first_step(tmp_path, settings, message):
    assert re.search(message, refused(tmp_path, settings))


def test_weight_of_several_layers_is_refused():
    net = network()
    net.append(nn.Linear(5, 4, dtype=torch.float64))
    net[5].weight = net[2].weight
    with pytest.raises(ConfigError, match=r"g.adapter: \d.weight belongs to several layers"):
        with_lora(net)


def test_network_without_layers_to_adapt_is_refused():
    with pytest.raises(ConfigError, match=r"Embedding has no linear layer or convolution; name weights by g.adapter"):
        with_lora(nn.Embedding(3, 2))
