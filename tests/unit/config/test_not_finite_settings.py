"""Settings that are NaN or infinite are refused by name: in recipes, on the command line, and from Python."""

import pytest
from torch import nn

import paragan as pg
from paragan.config import parse_recipe
from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, data, trainer

RECIPE = "data: synthetic\nmodel: mlp\nloss: hinge\n"
TEXTS = ["nan", ".nan", ".NaN", "inf", "-.inf", "Infinity", "1e999"]
KEYS = {
    "d.optimizer.lr": "d.optimizer.lr",
    "g.optimizer.arguments.eps": "arguments.eps",
    "train.kimg": "train.kimg",
    "g.ema.half_life_kimg": "g.ema.half_life_kimg",
    "adversarial.weight": "adversarial.weight",
    "d.max_norm": "d.max_norm",
}
FREE = {
    "list": ("g: {optimizer: {arguments: {betas: [0.5, VALUE]}}}", "g.optimizer: arguments.betas.1"),
    "group": ("d: {optimizer: {groups: [{match: '*', weight_decay: VALUE}]}}", "d.optimizer: groups.0.weight_decay"),
    "rate of a group": ("d: {optimizer: {groups: [{match: '*', lr: VALUE}]}}", "d.optimizer: groups.0.lr"),
    "schedule": ("adversarial: {weight: {start: 0, final: VALUE, to_kimg: 1}}", "adversarial.weight.final"),
    "penalty": ("penalties: [{name: r1, weight: VALUE}]", "penalties.0.weight"),
}
NUMBERS = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("key", KEYS)
def test_words_of_the_command_line_are_named(key, text):
    with pytest.raises(ConfigError) as refusal:
        parse_recipe(RECIPE, "r.yaml", overrides=[f"{key}={text}"])
    (line,) = str(refusal.value).splitlines()
    assert KEYS[key] in line and text in line


@pytest.mark.parametrize("text", [".nan", "1e999"])
@pytest.mark.parametrize("name", FREE)
def test_values_of_recipes_are_named_with_their_line(name, text):
    recipe, message = FREE[name]
    with pytest.raises(ConfigError) as refusal:
        parse_recipe(RECIPE + recipe.replace("VALUE", text), "r.yaml")
    (line,) = str(refusal.value).splitlines()
    assert line.startswith(f"r.yaml:4: {message}") and text in line


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"d.optimizer.lr": "VALUE"}, "d.optimizer.lr"),
        ({"g.optimizer.arguments": {"betas": [0.5, "VALUE"]}}, "g.optimizer.arguments.betas.1"),
        ({"g.ema": {"half_life_kimg": "VALUE"}}, "g.ema.half_life_kimg"),
        ({"d.optimizer.groups": [{"match": "*", "lr": "VALUE"}]}, "d.optimizer.groups.0.lr"),
    ],
)
def test_settings_from_python_are_named(tmp_path, settings, key, number):
    settings = filled(settings, number)
    for call in (
        lambda: pg.Trainer(G(), D(), data(), settings=settings, out=tmp_path),
        lambda: pg.train("digits", settings, out=tmp_path),
    ):
        with pytest.raises(ConfigError, match=rf"^settings: {key} is {number}; pass a finite number$"):
            call()


def filled(value, number):
    """Return a value with the number in place of its text VALUE."""
    if isinstance(value, dict):
        return {key: filled(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, number) for item in value]
    return number if value == "VALUE" else value


@pytest.mark.parametrize("number", NUMBERS)
def test_options_of_terms_are_named(tmp_path, number):
    with pytest.raises(ConfigError, match=rf"^g: near has weight={number}; pass a finite number"):
        trainer(G(), D(), tmp_path, terms=[pg.Term(name="near", function=lambda o, i: o.images, weight=number)])
    with pytest.raises(ConfigError, match=rf"^d: r1 has weight={number}"):
        trainer(G(), D(), tmp_path, terms=[pg.R1Penalty(pg.R1Options(weight=number))])
    with pytest.raises(ValueError, match=f"^final must be a finite number, not {number}"):
        pg.WeightSchedule(start=0.0, final=number, to_kimg=1.0)


@pytest.mark.parametrize("text", ["inf", "nan"])
def test_text_that_is_a_name_is_none_of_them(tmp_path, text):
    layer = nn.Sequential(nn.Linear(6, 1))
    layer.add_module(text, nn.Linear(1, 1))
    groups = [{"match": f"{text}*", "lr": 1e-3}]
    d = pg.Trainer(G(), layer, data(), sample="x", settings={"d.optimizer.groups": groups}, out=tmp_path)
    assert d.config.d.optimizer.groups == tuple(groups)
    assert parse_recipe(RECIPE, "r.yaml", overrides=[f"init.path={text}"]).init.path == text
