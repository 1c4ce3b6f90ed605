"""Hints for other trainers' names: every setting and name that they give exists here."""

import math
import re

import pytest
from torch import nn

from paragan import config
from paragan.cli.main import main
from paragan.config.hints import NAMES, SETTINGS
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.game.ema import Ema
from paragan.game.options import EmaOptions


def keys(tree, path=""):
    """All dotted keys of a nest of maps, those of maps included."""
    for key, value in tree.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from keys(value, f"{path}{key}.")


def test_hints_give_settings_that_exist():
    given = {key for text in SETTINGS.values() for key in re.findall(r"([a-z_.]+)=", text)}
    arguments = [f"{side}.optimizer.arguments={{betas: [0, 1], weight_decay: 0}}" for side in "gd"]
    assert len(given) > 20
    assert given <= set(keys(config.to_tree(config.read_recipe("own", arguments))))


def test_hints_give_names_that_exist_for_names_that_do_not():
    for folder, names in NAMES.items():
        assert set(names.values()) <= set(registry.names(folder))
        assert not set(names) & set(registry.names(folder))


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("lr=1e-4", "use g.optimizer.lr=0.0001 d.optimizer.lr=0.0001"),
        ("train.lr=2", "use g.optimizer.lr=2 d.optimizer.lr=2"),
        ("optimizer.lr=1e-3", "use g.optimizer.lr=0.001 d.optimizer.lr=0.001"),
        ("optimizer=SGD", "use g.optimizer=SGD d.optimizer=SGD"),
        ("Batch-Size=64", "use train.batch=64"),
        ("betas=[0, 0.9]", "use g.optimizer.arguments.betas=[0,0.9] d.optimizer.arguments.betas=[0,0.9]"),
        ("loss=BCE", "'BCE' is called nonsaturating in paragan; use loss.name=nonsaturating"),
        ("loss=wgan_gp", "is wasserstein with a gradient penalty; use loss=wasserstein penalties=gradient_penalty"),
        ("evaluation.metrics=FID", "use evaluation.metrics=fd evaluation.features=inception"),
        ("num_workers=0", "use loading.prefetch=0"),
        ("gp_weight=5", "use penalties='[{name: gradient_penalty, weight: 5}]'"),
        ("penalties=gp", "use penalties.0.name=gradient_penalty"),
        ("data.flip=true", ": leave it out, or pass data.name=NAME too"),
    ],
)
def test_the_settings_of_other_trainers_are_answered_with_those_to_give(word, given):
    with pytest.raises(ConfigError) as caught:
        config.read_recipe("digits", [word])
    assert str(caught.value).startswith("command line: ")
    assert str(caught.value).endswith(given)


@pytest.mark.parametrize(
    "words",
    [
        ["loss=wasserstein", "penalties=gradient_penalty"],
        ["penalties=[{name: gradient_penalty, weight: 10}]"],
        ["evaluation.metrics=fd", "evaluation.features=inception"],
        ["loading.threads=8"],
        ["writers=[images,jsonl,console,report,wandb]"],
    ],
)
def test_settings_of_hints_are_accepted(words):
    config.read_recipe("digits", words)


def test_half_life_of_the_hint_is_that_of_the_decay():
    batch, decay = 64, 0.999
    kimg = math.log(2) / (1 - decay) * batch / 1000
    ema = Ema(nn.Linear(1, 1), EmaOptions(half_life_kimg=kimg))
    assert 1 - ema.weight(10_000_000, batch) == pytest.approx(decay, abs=1e-6)


@pytest.mark.parametrize("word", ["data.path=photos", "scheme.aeg=1", "zzzzzz=3"])
def test_a_key_like_no_other_gets_no_suggestion_of_another_section(word):
    with pytest.raises(ConfigError) as caught:
        config.read_recipe("digits", [word])
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "given"),
    [
        ("evaluation.metrics=fd,coverage", "write the list as [fd, coverage]"),
        ("penalties=r1, r2", "write the list as [r1, r2]"),
        ("writers=images,jsonl", "write the list as [images, jsonl]"),
        ("g.schedule.milestones=100,200", "write the list as [100, 200]"),
    ],
)
def test_list_given_with_commas_is_answered_with_one_in_brackets(word, given, capsys):
    assert main(["config", "digits", word]) == 2
    assert given in capsys.readouterr().err


@pytest.mark.parametrize("word", ["loss=hinge,wasserstein", "train.batch=8,16"])
def test_text_with_commas_where_no_list_is_valid_is_no_list(word, capsys):
    assert main(["config", "digits", word]) == 2
    assert "write the list" not in capsys.readouterr().err


@pytest.mark.parametrize("recipe", ["digits", "own", "dmd2-digits"])
@pytest.mark.parametrize("word", ["dataroot", "train.data", "data_dir"])
def test_a_hint_about_the_path_of_the_data_works_for_the_data_of_the_recipe(recipe, word):
    with pytest.raises(ConfigError) as caught:
        config.read_recipe(recipe, [f"{word}=x"])
    given = re.findall(r"data\.\w+=\w+", str(caught.value))
    assert config.read_recipe(recipe, given).data.options.path == "x"


@pytest.mark.parametrize(
    ("key", "suggested"),
    [
        ("players.fake_score.model", "model"),
        ("d.penalties", "penalties"),
        ("g.width", "model.width"),
        ("players.fake_score.lr", "players.fake_score.optimizer.lr"),
        ("data.batch", "train.batch"),
    ],
)
def test_a_suggested_key_of_another_section_exists(key, suggested):
    with pytest.raises(ConfigError) as caught:
        config.read_recipe("dmd2-digits", [f"{key}=7"])
    assert re.findall(r"did you mean '([\w.]+)'", str(caught.value)) == [suggested]
    with pytest.raises(ConfigError) as refused:
        config.read_recipe("dmd2-digits", [f"{suggested}={{no_such_key: 7}}"])
    assert f"{suggested}: unknown key" not in str(refused.value)
