"""Arguments of optimisers: integers where torch wants floats, and one line with its place for what is refused."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.config import dump, parse_recipe
from paragan.core.errors import ConfigError
from paragan.core.types import Side

RECIPE = """data: {name: digits, size: 8}
model: dcgan
loss: wasserstein
d:
  optimizer:
    name: Adam
    arguments:
      betas: [0, 0.9]
      eps: 1
"""


def optimizer_of(config):
    return build.policy(config.d).optimizer([("weight", nn.Parameter(torch.zeros(1)))])


def test_integers_are_floats_in_a_recipe():
    group = optimizer_of(parse_recipe(RECIPE, "mine.yaml")).param_groups[0]
    assert list(group["betas"]) == [0.0, 0.9]
    assert [type(value) for value in (*group["betas"], group["eps"])] == [float] * 3


@pytest.mark.parametrize("betas", [(0, 0.9), [0, 0.9]])
def test_integers_are_floats_in_python(betas):
    policy = pg.Policy(kind=torch.optim.Adam, arguments={"betas": betas})
    player = pg.Player(side=pg.Side.D, net=nn.Linear(2, 1), policy=policy)
    assert list(player.optimizer.param_groups[0]["betas"]) == [0.0, 0.9]


def test_a_config_keeps_what_was_written():
    config = parse_recipe(RECIPE, "mine.yaml")
    assert "betas: [0, 0.9]" in dump(config)
    assert parse_recipe(dump(config), "again") == config


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "beta: [0, 0.9]",
            "mine.yaml:8: d.optimizer.arguments.beta: Adam has no such argument; did you mean 'betas'?;",
        ),
        ("betas: [0, 2]", "mine.yaml:8: d.optimizer.arguments.betas: betas=[0, 2]: "),
    ],
)
def test_a_refused_argument_is_one_line_with_its_place_and_cure(written, said):
    config = parse_recipe(RECIPE.replace("betas: [0, 0.9]", written), "mine.yaml")
    with pytest.raises(ConfigError) as refusal:
        optimizer_of(config)
    text = str(refusal.value)
    assert text.startswith(said) and "\n" not in text
    assert "its arguments are: lr, betas" in text
    assert "beta: " in written or "Adam's default is betas=(0.9, 0.999)" in text


def test_a_refused_argument_in_python_names_the_side():
    policy = pg.Policy(kind=torch.optim.Adam, arguments={"beta": (0, 0.9)})
    with pytest.raises(ConfigError, match=r"^d\.optimizer\.arguments\.beta: Adam has no such argument"):
        pg.Player(side=Side.D, net=nn.Linear(2, 1), policy=policy)
